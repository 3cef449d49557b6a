package deepseek

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/experts"
	"github.com/psyche-go/psyche/learn/model/recompute"
	"github.com/psyche-go/psyche/learn/model/rotary"
	"github.com/psyche-go/psyche/learn/model/weights"
	"github.com/psyche-go/psyche/learn/torch"
)

// errOption means that a model does not support an option.
var errOption = errors.New("unsupported option")

// Options are the settings of a model's computation. The zero value computes in f32.
type Options struct {
	// Compute is the type of activations and of the copies of the weights for multiplication with
	// them: F32 or BF16. The weights themselves and their gradients are F32, and so is the choice
	// of experts.
	Compute torch.DType
	// Recompute makes Gradient keep only the input of each layer, and compute the rest a second
	// time.
	Recompute bool
}

// DeepSeek is a model on an engine. Forward and Loss run inside the engine's Do.
type DeepSeek struct {
	config     Config
	options    Options
	engine     *torch.Engine
	parameters []torch.Parameter
	buffers    []torch.Parameter

	embedding *torch.Tensor // [VocabSize,HiddenSize]
	blocks    []block
	norm      *torch.Tensor // [HiddenSize]
	head      *torch.Tensor // [VocabSize,HiddenSize], the embedding if tied

	rotation rotary.Table
}

// block holds the weights of one layer.
type block struct {
	attention attention
	norm      *torch.Tensor       // [HiddenSize], before the feed-forward part
	dense     experts.FeedForward // in a dense layer
	experts   *mixture            // nil in a dense layer
}

// New creates a model of the config on the engine, with f32 copies of the weights. In canonical
// form, tensors must be exactly those of the config (F32, BF16 or F16).
func New(ctx context.Context, engine *torch.Engine, c Config, o Options, tensors []safetensors.Tensor) (*DeepSeek, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	own, err := canonical(c, tensors)
	if err != nil {
		return nil, fmt.Errorf("deepseek: %w", err)
	}
	return build(ctx, engine, c, o, func(s *torch.Scope) *weights.Source { return weights.NewSource(s, own) })
}

func (o Options) check() error {
	if o.Compute != torch.F32 && o.Compute != torch.BF16 {
		return fmt.Errorf("deepseek: %w: compute type %s, want f32 or bf16", errOption, o.Compute)
	}
	return nil
}

// Copy creates a model on an engine of any device with its own weights, equal to m's.
func (m *DeepSeek) Copy(ctx context.Context, engine *torch.Engine, o Options) (*DeepSeek, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return build(ctx, engine, m.config, o, func(s *torch.Scope) *weights.Source {
		return weights.NewCopy(s, slices.Concat(m.parameters, m.buffers))
	})
}

// Twin creates a model on another engine of the same device that shares the memory of the weights,
// with separate gradients. It must not compute while the weights change.
func (m *DeepSeek) Twin(ctx context.Context, engine *torch.Engine) (*DeepSeek, error) {
	return m.TwinIn(ctx, engine, m.options.Compute)
}

// TwinIn is Twin for a model that computes in another type.
func (m *DeepSeek) TwinIn(ctx context.Context, engine *torch.Engine, compute torch.DType) (*DeepSeek, error) {
	o := m.options
	o.Compute = compute
	return build(ctx, engine, m.config, o, func(s *torch.Scope) *weights.Source {
		return weights.NewTwin(s, slices.Concat(m.parameters, m.buffers))
	})
}

func build(ctx context.Context, engine *torch.Engine, c Config, o Options, open func(s *torch.Scope) *weights.Source) (*DeepSeek, error) {
	m := &DeepSeek{config: c, options: o, engine: engine}
	err := engine.Do(ctx, false, func(s *torch.Scope) error {
		source := open(s)
		m.take(source)
		var err error
		m.parameters, m.buffers, err = source.Close()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("deepseek: %w", err)
	}
	return m, nil
}

// take takes the weights by their names in published checkpoints.
func (m *DeepSeek) take(source *weights.Source) {
	c := m.config
	outer := weights.OuterShapes(int64(c.VocabSize), int64(c.HiddenSize), c.TieWordEmbeddings)
	m.embedding = source.Take("model.embed_tokens.weight", outer["model.embed_tokens.weight"]...)
	for i := range c.NumHiddenLayers {
		m.blocks = append(m.blocks, m.takeLayer(source, i))
	}
	m.norm = source.Take("model.norm.weight", outer["model.norm.weight"]...)
	m.head = m.embedding
	if !c.TieWordEmbeddings {
		m.head = source.Take("lm_head.weight", outer["lm_head.weight"]...)
	}
}

func (m *DeepSeek) takeLayer(source *weights.Source, i int) block {
	c, shapes := m.config, layerShapes(m.config, i)
	layer := func(name string) *torch.Tensor { return source.Take(weights.InLayer(i, name), shapes[name]...) }
	b := block{norm: layer("post_attention_layernorm.weight"), attention: attention{
		norm:   layer("input_layernorm.weight"),
		keysA:  layer("self_attn.kv_a_proj_with_mqa.weight"),
		keysN:  layer("self_attn.kv_a_layernorm.weight"),
		keysB:  layer("self_attn.kv_b_proj.weight"),
		output: layer("self_attn.o_proj.weight"),
	}}
	if a := &b.attention; c.QLoraRank > 0 {
		a.queriesA, a.queriesN = layer("self_attn.q_a_proj.weight"), layer("self_attn.q_a_layernorm.weight")
		a.queries = layer("self_attn.q_b_proj.weight")
	} else {
		a.queries = layer("self_attn.q_proj.weight")
	}
	if !c.sparse(i) {
		b.dense = feedForward(layer, "mlp.")
		return b
	}
	b.experts = &mixture{gate: layer("mlp.gate.weight")}
	if c.v3() {
		b.experts.correction = source.TakeBuffer(weights.InLayer(i, correctionName), shapes[correctionName]...)
	}
	if c.Experts.Shared > 0 {
		b.experts.shared = feedForward(layer, "mlp.shared_experts.")
	}
	ofExpert := expertShapes(c)
	for j := range c.NumExperts {
		get := func(name string) *torch.Tensor { return source.Take(expertName(i, j, name), ofExpert[name]...) }
		b.experts.routed = append(b.experts.routed, feedForward(get, ""))
	}
	return b
}

// feedForward takes the matrices of a layer whose names start with prefix.
func feedForward(get func(name string) *torch.Tensor, prefix string) experts.FeedForward {
	return experts.FeedForward{Gate: get(prefix + "gate_proj.weight"), Up: get(prefix + "up_proj.weight"), Down: get(prefix + "down_proj.weight")}
}

// Canonical converts a checkpoint's tensors to the names and shapes of Parameters and Buffers.
func (m *DeepSeek) Canonical(tensors []safetensors.Tensor) ([]safetensors.Tensor, error) {
	return canonical(m.config, tensors)
}

// Close frees the model's tensors.
func (m *DeepSeek) Close(ctx context.Context) error {
	return m.engine.Do(ctx, false, func(*torch.Scope) error {
		weights.Free(m.parameters)
		weights.Free(m.buffers)
		m.parameters, m.buffers = nil, nil
		m.rotation.Free()
		return nil
	})
}

// Engine returns the engine of the model.
func (m *DeepSeek) Engine() *torch.Engine { return m.engine }

// VocabSize returns the number of token IDs that the model knows: 0 to VocabSize−1.
func (m *DeepSeek) VocabSize() int { return m.config.VocabSize }

// MaxTokens returns the length of the longest sequence.
func (m *DeepSeek) MaxTokens() int { return m.config.MaxPositionEmbeddings }

// Parameters returns the trainable tensors sorted by name. A tied head is not listed.
func (m *DeepSeek) Parameters() []torch.Parameter { return m.parameters }

// Buffers returns the tensors of a checkpoint that are not trained, sorted by name: V3's
// corrections of the experts' scores.
func (m *DeepSeek) Buffers() []torch.Parameter { return m.buffers }

// Forward returns the logits [B,T,VocabSize] of the next token after each of ids i64 [B,T].
func (m *DeepSeek) Forward(s *torch.Scope, ids *torch.Tensor) *torch.Tensor {
	x, _ := m.hidden(s, ids)
	return m.linear(x, m.head)
}

// Loss returns the mean cross-entropy, in nats, of predicting targets i64 [B,T] from ids i64 [B,T];
// the caller has shifted them. Targets equal to torch.IgnoreTarget do not count. The loss that
// balances the experts contributes to the gradients, not to the value.
func (m *DeepSeek) Loss(s *torch.Scope, ids, targets *torch.Tensor) *torch.Tensor {
	x, balance := m.hidden(s, ids)
	loss := m.crossEntropy(x, targets)
	if balance != nil {
		loss = loss.Add(balance.Sub(balance.Detach()))
	}
	return loss
}

// crossEntropy returns the mean loss for the output of hidden.
func (m *DeepSeek) crossEntropy(x, targets *torch.Tensor) *torch.Tensor {
	return x.Reshape(-1, int64(m.config.HiddenSize)).LinearCrossEntropy(m.head, targets.Reshape(-1))
}

// sharedCrossEntropy is crossEntropy, but Backward computes share times the gradient.
func (m *DeepSeek) sharedCrossEntropy(x, targets *torch.Tensor, share float64) *torch.Tensor {
	return x.Reshape(-1, int64(m.config.HiddenSize)).LinearCrossEntropyShare(m.head, targets.Reshape(-1), share)
}

// Gradient returns Loss, and adds share times its gradient to the gradients of the parameters.
func (m *DeepSeek) Gradient(s *torch.Scope, ids, targets *torch.Tensor, share float64) *torch.Tensor {
	if !m.options.Recompute {
		x, balance := m.hidden(s, ids)
		loss := m.sharedCrossEntropy(x, targets, share)
		root := loss
		if balance != nil {
			root = loss.Add(balance.Sub(balance.Detach()).MulScalar(share))
		}
		root.Backward()
		return loss
	}
	m.checkLength(ids.Dim(1))
	cos, sin := m.rotations(s, 0, ids.Dim(1))
	return recompute.Gradient(s, recompute.Network{
		Embed:  func() *torch.Tensor { return m.embedding.Embed(ids, m.options.Compute) },
		Layers: len(m.blocks),
		Layer: func(s *torch.Scope, i int, x *torch.Tensor) (y, balance *torch.Tensor) {
			return m.layer(s, &m.blocks[i], x, cos, sin)
		},
		Loss: func(x *torch.Tensor) (loss, root *torch.Tensor) {
			loss = m.sharedCrossEntropy(x.RMSNorm(m.norm, m.config.RMSNormEps), targets, share)
			return loss, loss
		},
	}, share)
}

// layer computes a layer, and the loss that balances its experts.
func (m *DeepSeek) layer(s *torch.Scope, b *block, x, cos, sin *torch.Tensor) (y, balance *torch.Tensor) {
	return m.feed(s, b, x.Add(m.attend(s, &b.attention, x, cos, sin)))
}

// hidden computes the network up to the head: [B,T] to [B,T,HiddenSize], and the loss that balances
// the experts, nil if there is none.
func (m *DeepSeek) hidden(s *torch.Scope, ids *torch.Tensor) (x, balance *torch.Tensor) {
	positions := ids.Dim(1)
	m.checkLength(positions)
	cos, sin := m.rotations(s, 0, positions)
	x = m.embedding.Embed(ids, m.options.Compute)
	for i := range m.blocks {
		_ = s.Sub(func(s *torch.Scope) error { // frees tensors that the backward pass does not need
			y, unequal := m.layer(s, &m.blocks[i], x, cos, sin)
			if x = s.Lift(y); unequal != nil {
				if balance != nil {
					unequal = balance.Add(unequal)
				}
				balance = s.Lift(unequal)
			}
			return nil
		})
	}
	return x.RMSNorm(m.norm, m.config.RMSNormEps), balance
}

func (m *DeepSeek) checkLength(positions int64) {
	if positions > int64(m.config.MaxPositionEmbeddings) {
		panic(&torch.Error{Op: "deepseek", Message: fmt.Sprintf("%d tokens, max_position_embeddings is %d",
			positions, m.config.MaxPositionEmbeddings)})
	}
}

// feed computes the feed-forward sublayer of a layer.
func (m *DeepSeek) feed(s *torch.Scope, b *block, x *torch.Tensor) (y, balance *torch.Tensor) {
	if b.experts == nil {
		return x.FeedForwardBlock(b.norm, b.dense.Gate, b.dense.Up, b.dense.Down, m.config.RMSNormEps, false), nil
	}
	mixed, balance := m.mix(s, b.experts, x.RMSNorm(b.norm, m.config.RMSNormEps))
	return x.Add(mixed), balance
}

// linear multiplies by a weight in the type of the activations.
func (m *DeepSeek) linear(x, weight *torch.Tensor) *torch.Tensor {
	return x.Linear(weight.To(m.options.Compute))
}
