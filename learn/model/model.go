package model

import (
	"context"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/model/weights"
	"github.com/psyche-go/psyche/learn/torch"
)

// Parameter is a trainable tensor under its name in a checkpoint.
type Parameter = torch.Parameter

// Model is a causal language model on an engine. Forward, Loss and Next are called inside
// the engine's Do, the other methods from anywhere.
type Model interface {
	// Forward gives the logits [B,T,VocabSize] of the next token after each of ids i64 [B,T].
	Forward(s *torch.Scope, ids *torch.Tensor) *torch.Tensor
	// Loss is the mean cross-entropy, in nats, of predicting targets i64 [B,T] from ids
	// i64 [B,T]. Targets equal to torch.IgnoreTarget do not count. With gradients on,
	// Backward on it adds to the gradients of the parameters.
	Loss(s *torch.Scope, ids, targets *torch.Tensor) *torch.Tensor
	// Gradient gives the value of Loss, and adds share times its gradient to the gradients of the
	// parameters. It is what saves the memory that Options.Recompute saves.
	Gradient(s *torch.Scope, ids, targets *torch.Tensor, share float64) *torch.Tensor
	// Next gives the logits f32 [N,VocabSize] of the token after each of N texts, whose
	// tokens are added to their caches, each of which is of one text. Without gradients only.
	Next(s *torch.Scope, texts ...kvcache.Text) *torch.Tensor
	// NewCache makes an empty cache for Next. Whoever made it frees it.
	NewCache() *kvcache.Cache
	// Parameters lists the trainable tensors, f32 and contiguous, sorted by name. The
	// slice belongs to the model.
	Parameters() []Parameter
	// Canonical gives a checkpoint's tensors the names and shapes of the model's own:
	// published checkpoints store some otherwise, twice, or beside what the model has.
	Canonical(tensors []safetensors.Tensor) ([]safetensors.Tensor, error)
	// VocabSize bounds token ids: 0 to VocabSize−1.
	VocabSize() int
	// MaxTokens is the longest sequence.
	MaxTokens() int
	// Engine is where the model lives.
	Engine() *torch.Engine
	// Close frees the model's tensors.
	Close(ctx context.Context) error
}

// buffered is a Model whose checkpoints hold tensors that are not trained.
type buffered interface {
	Model
	Buffers() []Parameter
}

// stored lists the tensors of a model's checkpoints, sorted by name.
func stored(m Model) []Parameter {
	b, ok := m.(buffered)
	if !ok {
		return m.Parameters()
	}
	all := slices.Concat(m.Parameters(), b.Buffers())
	weights.SortByName(all)
	return all
}

// SetWeights overwrites all weights with tensors: those that Export gives, or any with which
// New makes a model of the same config. On an error nothing has changed.
func SetWeights(ctx context.Context, m Model, tensors []safetensors.Tensor) error {
	own, err := m.Canonical(tensors)
	if err != nil {
		return fmt.Errorf("set weights: %w", err)
	}
	err = m.Engine().Do(ctx, false, func(s *torch.Scope) error {
		return weights.Copy(s, stored(m), own)
	})
	if err != nil {
		return fmt.Errorf("set weights: %w", err)
	}
	return nil
}

// Export copies the weights out as F32, sorted by name.
func Export(ctx context.Context, m Model) ([]safetensors.Tensor, error) {
	return export(ctx, m, weights.Export)
}

// Lend is Export without a copy, of a model on the CPU: what it returns changes with the weights, and ends with the model.
func Lend(ctx context.Context, m Model) ([]safetensors.Tensor, error) {
	return export(ctx, m, weights.Lend)
}

func export(ctx context.Context, m Model, of func(parameters []torch.Parameter) []safetensors.Tensor) ([]safetensors.Tensor, error) {
	var out []safetensors.Tensor
	err := m.Engine().Do(ctx, false, func(*torch.Scope) error {
		out = of(stored(m))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("export weights: %w", err)
	}
	return out, nil
}
