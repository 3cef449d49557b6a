package llama

import (
	"context"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/recompute"
	"github.com/psyche-go/psyche/learn/model/rotary"
	"github.com/psyche-go/psyche/learn/model/weights"
	"github.com/psyche-go/psyche/learn/torch"
)

// Llama is a model on an engine. Forward and Loss run inside the engine's Do.
type Llama struct {
	config     Config
	options    Options
	engine     *torch.Engine
	parameters []torch.Parameter
	buffers    []torch.Parameter

	embedding *torch.Tensor // [VocabSize,HiddenSize]
	blocks    []block
	norm      *torch.Tensor // [HiddenSize]
	head      *torch.Tensor // [VocabSize,HiddenSize], the embedding if tied

	rotation, longRotation, localRotation rotary.Table
}

// block holds the weights of one layer.
type block struct {
	attention      torch.AttentionWeights
	norm           *torch.Tensor // [HiddenSize]
	gate, up, down *torch.Tensor // [IntermediateSize,HiddenSize] twice, and its transpose
	bias           biases
	extra          extras
	layer          Layer
	experts        *mixture // nil in a dense layer
	packed         packed   // replaces some of the above, which are then nil

	fusedAttention, fusedFeed bool
}

// Options are the settings of a model's computation. The zero value computes in f32.
type Options struct {
	// Compute is the type of activations and of the copies of the weights for multiplication with
	// them: F32, BF16 or F16. The weights themselves and their gradients are F32.
	Compute torch.DType
	// Recompute keeps only the input of each sublayer for the backward pass and computes the rest a
	// second time (Chen et al., arXiv 1604.06174). For models that differ from Llama, Gradient
	// keeps the input of each layer.
	Recompute bool
}

// New creates a model of the config on the engine, with f32 copies of the weights. In canonical
// form, tensors must be exactly those of the config (F32, BF16 or F16).
func New(ctx context.Context, engine *torch.Engine, c Config, o Options, tensors []safetensors.Tensor) (*Llama, error) {
	own, err := canonical(c, tensors)
	if err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	return build(ctx, engine, c, o, func(s *torch.Scope) *weights.Source { return weights.NewSource(s, own) })
}

// canonical omits buffers of published checkpoints, and a tied head.
func canonical(c Config, tensors []safetensors.Tensor) ([]safetensors.Tensor, error) {
	if err := refuseMXFP4(tensors); err != nil {
		return nil, err
	}
	tensors = weights.WithoutLayers(weights.WithoutBuffers(tensors, c.NumHiddenLayers), c.NumHiddenLayers, c.NumNextN)
	if !c.TieWordEmbeddings {
		return tensors, nil
	}
	return weights.WithoutTied(tensors, "lm_head.weight", "model.embed_tokens.weight")
}

// Twin creates a model on another engine of the same device that shares the memory of the weights,
// with separate gradients. It must not compute while the weights change.
func (m *Llama) Twin(ctx context.Context, engine *torch.Engine) (*Llama, error) {
	return m.TwinIn(ctx, engine, m.options.Compute)
}

// TwinIn is Twin for a model that computes in another type.
func (m *Llama) TwinIn(ctx context.Context, engine *torch.Engine, compute torch.DType) (*Llama, error) {
	o := m.options
	o.Compute = compute
	return build(ctx, engine, m.config, o, func(s *torch.Scope) *weights.Source { return weights.NewTwin(s, m.stored()) })
}

// Copy creates a model on an engine of any device with its own weights, equal to m's.
func (m *Llama) Copy(ctx context.Context, engine *torch.Engine, o Options) (*Llama, error) {
	return build(ctx, engine, m.config, o, func(s *torch.Scope) *weights.Source { return weights.NewCopy(s, m.stored()) })
}

func build(ctx context.Context, engine *torch.Engine, c Config, o Options, open func(s *torch.Scope) *weights.Source) (*Llama, error) {
	m := &Llama{config: c, options: o, engine: engine}
	err := engine.Do(ctx, false, func(s *torch.Scope) error {
		source := open(s)
		m.take(source)
		var err error
		m.parameters, m.buffers, err = source.Close()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	return m, nil
}

// take takes the weights by their names in transformers.
func (m *Llama) take(source *weights.Source) {
	next := shapes(m.config)
	get := func(name string) *torch.Tensor {
		if fixed(name) {
			return source.TakeBuffer(name, next[name]...)
		}
		return source.Take(name, next[name]...)
	}
	m.embedding = get("model.embed_tokens.weight")
	for i := range m.config.NumHiddenLayers {
		layer := func(name string) *torch.Tensor { return get(weights.InLayer(i, name)) }
		together := func(names ...string) []*torch.Tensor {
			wanted := make([]weights.Matrix, len(names))
			for j, name := range names {
				full := weights.InLayer(i, name)
				wanted[j] = weights.Matrix{Name: full, Rows: next[full][0], Columns: next[full][1]}
			}
			return source.TakeTogether(wanted...)
		}
		// Matrices with the same input are adjacent in memory, so that one product computes them.
		b := block{layer: m.config.layer(i), bias: m.config.takeBiases(layer)}
		if m.config.Packed.Attention {
			b.packed.attention = layer(packedAttention)
		} else {
			qkv := together("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight")
			b.attention.Query, b.attention.Key, b.attention.Value = qkv[0], qkv[1], qkv[2]
		}
		b.attention.Output = layer("self_attn.o_proj.weight")
		switch {
		case m.config.sparse(i):
			b.experts = m.config.takeExperts(layer)
		case m.config.Packed.Feed:
			b.packed.feed, b.down = layer(packedFeed), layer(m.config.feed("down_proj.weight"))
		default:
			pair := together(m.config.feed("gate_proj.weight"), m.config.feed("up_proj.weight"))
			b.gate, b.up, b.down = pair[0], pair[1], layer(m.config.feed("down_proj.weight"))
		}
		m.config.takeNorms(&b, layer)
		b.fuse(m.config)
		m.blocks = append(m.blocks, b)
	}
	m.norm = get("model.norm.weight")
	m.head = m.embedding
	if !m.config.TieWordEmbeddings {
		m.head = get("lm_head.weight")
	}
}

// Canonical removes the tensors of a published checkpoint that do not belong to the model.
func (m *Llama) Canonical(tensors []safetensors.Tensor) ([]safetensors.Tensor, error) {
	return canonical(m.config, tensors)
}

// Close frees the model's tensors.
func (m *Llama) Close(ctx context.Context) error {
	return m.engine.Do(ctx, false, func(*torch.Scope) error {
		weights.Free(m.stored())
		m.parameters, m.buffers = nil, nil
		m.rotation.Free()
		m.longRotation.Free()
		m.localRotation.Free()
		return nil
	})
}

// Engine returns the engine of the model.
func (m *Llama) Engine() *torch.Engine { return m.engine }

// VocabSize returns the number of token IDs that the model knows: 0 to VocabSize−1.
func (m *Llama) VocabSize() int { return m.config.VocabSize }

// MaxTokens returns the length of the longest sequence.
func (m *Llama) MaxTokens() int { return m.config.MaxPositionEmbeddings }

// Parameters returns the trainable tensors sorted by name. A tied head is not listed.
func (m *Llama) Parameters() []torch.Parameter { return m.parameters }

// Buffers returns the tensors of a checkpoint that are not trained, sorted by name: corrections of
// the experts' scores.
func (m *Llama) Buffers() []torch.Parameter { return m.buffers }

// stored returns the tensors of a checkpoint, parameters and buffers.
func (m *Llama) stored() []torch.Parameter { return slices.Concat(m.parameters, m.buffers) }

// Forward returns the logits [B,T,VocabSize] of the next token after each of ids i64 [B,T].
func (m *Llama) Forward(s *torch.Scope, ids *torch.Tensor) *torch.Tensor {
	return m.logits(m.hidden(s, ids))
}

// Loss returns the mean cross-entropy, in nats, of predicting targets i64 [B,T] from ids i64 [B,T];
// the caller has shifted them. Targets equal to torch.IgnoreTarget do not count.
func (m *Llama) Loss(s *torch.Scope, ids, targets *torch.Tensor) *torch.Tensor {
	return m.crossEntropy(m.hidden(s, ids), targets.Reshape(-1))
}

// Gradient returns Loss, and adds share times its gradient to the gradients of the parameters.
func (m *Llama) Gradient(s *torch.Scope, ids, targets *torch.Tensor, share float64) *torch.Tensor {
	if !m.options.Recompute || m.halvesAgain() {
		loss, root := m.sharedCrossEntropy(m.hidden(s, ids), targets.Reshape(-1), share)
		root.Backward()
		return loss
	}
	at := m.positions(s, ids)
	return recompute.Gradient(s, recompute.Network{
		Embed:  func() *torch.Tensor { return m.embed(ids) },
		Layers: len(m.blocks),
		Layer: func(s *torch.Scope, i int, x *torch.Tensor) (*torch.Tensor, *torch.Tensor) {
			b := &m.blocks[i]
			return m.feedForwardBlock(s, b, m.attentionBlock(s, b, x, at)), nil
		},
		Loss: func(x *torch.Tensor) (loss, root *torch.Tensor) {
			return m.sharedCrossEntropy(m.scaledHidden(x), targets.Reshape(-1), share)
		},
	}, share)
}

// halvesAgain reports whether single sublayers are recomputed, instead of whole layers.
func (m *Llama) halvesAgain() bool { return m.options.Recompute && m.config.notLlama() == "" }

// positions returns the rotations of all tokens of ids [B,T].
func (m *Llama) positions(s *torch.Scope, ids *torch.Tensor) turned {
	positions := ids.Dim(1)
	if positions > int64(m.config.MaxPositionEmbeddings) {
		panic(&torch.Error{Op: "llama", Message: fmt.Sprintf("%d tokens, max_position_embeddings is %d",
			positions, m.config.MaxPositionEmbeddings)})
	}
	return m.rotations(s, 0, positions, m.long(positions))
}

// hidden computes the network up to the head: [B,T] to [B,T,HiddenSize].
func (m *Llama) hidden(s *torch.Scope, ids *torch.Tensor) *torch.Tensor {
	at := m.positions(s, ids)
	x := m.embed(ids)
	for i := range m.blocks {
		b := &m.blocks[i]
		if b.fusedAttention && b.fusedFeed {
			x = m.attentionBlock(s, b, x, at)
			x = m.feedForwardBlock(s, b, x)
			continue
		}
		_ = s.Sub(func(s *torch.Scope) error { // frees tensors that the backward pass does not need
			x = s.Lift(m.feedForwardBlock(s, b, m.attentionBlock(s, b, x, at)))
			return nil
		})
	}
	return m.scaledHidden(x)
}
