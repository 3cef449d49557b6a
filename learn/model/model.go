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

// Parameter is a trainable tensor with its name in a checkpoint.
type Parameter = torch.Parameter

// Model is a causal language model on an engine. Forward, Loss and Next must be called inside the
// engine's Do, the other methods outside or inside.
type Model interface {
	// Forward returns the logits [B,T,VocabSize] of the next token after each of ids i64 [B,T].
	Forward(s *torch.Scope, ids *torch.Tensor) *torch.Tensor
	// Loss returns the mean cross-entropy, in nats, of predicting targets i64 [B,T] from ids i64
	// [B,T]. Targets equal to torch.IgnoreTarget do not count. With gradients on, Backward on it
	// adds to the gradients of the parameters.
	Loss(s *torch.Scope, ids, targets *torch.Tensor) *torch.Tensor
	// Gradient returns the value of Loss, and adds share times its gradient to the gradients of the
	// parameters. Options.Recompute saves memory only here.
	Gradient(s *torch.Scope, ids, targets *torch.Tensor, share float64) *torch.Tensor
	// Next returns the logits f32 [N,VocabSize] of the next token of N texts. It adds the tokens of
	// texts to their caches, each of which belongs to one text. Gradients must be off.
	Next(s *torch.Scope, texts ...kvcache.Text) *torch.Tensor
	// NewCache returns an empty cache for Next. The caller must free it.
	NewCache() *kvcache.Cache
	// Parameters returns the trainable tensors, f32 and contiguous, sorted by name. The slice
	// belongs to the model.
	Parameters() []Parameter
	// Canonical converts a checkpoint's tensors to the names and shapes of the model's own tensors.
	// Published checkpoints may store tensors in another form, twice, or in addition to the model's
	// tensors.
	Canonical(tensors []safetensors.Tensor) ([]safetensors.Tensor, error)
	// VocabSize returns the bound of token IDs: 0 to VocabSize−1.
	VocabSize() int
	// MaxTokens returns the length of the longest sequence.
	MaxTokens() int
	// Engine returns the engine of the model.
	Engine() *torch.Engine
	// Close frees the model's tensors.
	Close(ctx context.Context) error
}

// buffered is a Model whose checkpoints have tensors that are not trained.
type buffered interface {
	Model
	Buffers() []Parameter
}

// stored returns the tensors of a model's checkpoints, sorted by name.
func stored(m Model) []Parameter {
	b, ok := m.(buffered)
	if !ok {
		return m.Parameters()
	}
	all := slices.Concat(m.Parameters(), b.Buffers())
	weights.SortByName(all)
	return all
}

// SetWeights overwrites all weights with tensors: the output of Export, or any tensors from which
// New can create a model of the same config. After an error nothing has changed.
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

// Export returns a copy of the weights as F32, sorted by name.
func Export(ctx context.Context, m Model) ([]safetensors.Tensor, error) {
	return export(ctx, m, weights.Export)
}

// Lend is Export without a copy, for a model on the CPU. The result changes with the weights, and
// is valid until the model is closed.
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
