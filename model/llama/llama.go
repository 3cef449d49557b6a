package llama

import (
	"context"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/model/weights"
	"github.com/psyche-go/psyche/safetensors"
	"github.com/psyche-go/psyche/torch"
)

// Llama is a model on an engine. Forward and Loss run inside the engine's Do.
type Llama struct {
	config     Config
	engine     *torch.Engine
	parameters []torch.Parameter

	embedding *torch.Tensor // [VocabSize,HiddenSize]
	blocks    []block
	norm      *torch.Tensor // [HiddenSize]
	head      *torch.Tensor // [VocabSize,HiddenSize], the embedding when tied

	rotation rotation
}

// block holds the weights of one layer, in the order they are used.
type block struct {
	inputNorm      *torch.Tensor // [HiddenSize]
	query          *torch.Tensor // [heads·HeadDim,HiddenSize]
	key, value     *torch.Tensor // [key heads·HeadDim,HiddenSize]
	output         *torch.Tensor // [HiddenSize,heads·HeadDim]
	postNorm       *torch.Tensor // [HiddenSize]
	gate, up, down *torch.Tensor // [IntermediateSize,HiddenSize] twice, and its transpose
}

// New makes a model of the config on the engine, with f32 copies of the weights, which
// must be exactly those of the config (F32, BF16 or F16).
func New(ctx context.Context, engine *torch.Engine, c Config, tensors []safetensors.Tensor) (*Llama, error) {
	m := &Llama{config: c, engine: engine}
	err := engine.Do(ctx, false, func(s *torch.Scope) error {
		source := weights.NewSource(s, tensors)
		m.take(source)
		var err error
		m.parameters, err = source.Close()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	return m, nil
}

// take gets the weights by the names transformers gives them.
func (m *Llama) take(source *weights.Source) {
	if m.config.TieWordEmbeddings {
		source.Same("lm_head.weight", "model.embed_tokens.weight")
	}
	next := shapes(m.config)
	get := func(name string) *torch.Tensor { return source.Take(name, next[name]...) }
	m.embedding = get("model.embed_tokens.weight")
	for i := range m.config.NumHiddenLayers {
		layer := func(name string) *torch.Tensor { return get(layerName(i, name)) }
		// Old checkpoints store this table, which follows from the config.
		source.Skip(layerName(i, "self_attn.rotary_emb.inv_freq"))
		m.blocks = append(m.blocks, block{
			inputNorm: layer("input_layernorm.weight"),
			query:     layer("self_attn.q_proj.weight"),
			key:       layer("self_attn.k_proj.weight"),
			value:     layer("self_attn.v_proj.weight"),
			output:    layer("self_attn.o_proj.weight"),
			postNorm:  layer("post_attention_layernorm.weight"),
			gate:      layer("mlp.gate_proj.weight"),
			up:        layer("mlp.up_proj.weight"),
			down:      layer("mlp.down_proj.weight"),
		})
	}
	m.norm = get("model.norm.weight")
	m.head = m.embedding
	if !m.config.TieWordEmbeddings {
		m.head = get("lm_head.weight")
	}
}

// Close frees the model's tensors.
func (m *Llama) Close(ctx context.Context) error {
	return m.engine.Do(ctx, false, func(*torch.Scope) error {
		weights.Free(m.parameters)
		m.parameters = nil
		if m.rotation.positions > 0 {
			m.rotation.cos.Free()
			m.rotation.sin.Free()
			m.rotation = rotation{}
		}
		return nil
	})
}

// Config is what the model was made of.
func (m *Llama) Config() Config { return m.config }

// Engine is where the model lives.
func (m *Llama) Engine() *torch.Engine { return m.engine }

// VocabSize is the number of token ids the model knows: 0 to VocabSize−1.
func (m *Llama) VocabSize() int { return m.config.VocabSize }

// MaxTokens is the longest sequence.
func (m *Llama) MaxTokens() int { return m.config.MaxPositionEmbeddings }

// Parameters lists the trainable tensors sorted by name; a tied head is not listed.
func (m *Llama) Parameters() []torch.Parameter { return m.parameters }

// Forward gives the logits [B,T,VocabSize] of the next token after each of ids i64 [B,T].
func (m *Llama) Forward(s *torch.Scope, ids *torch.Tensor) *torch.Tensor {
	return m.hidden(s, ids).Linear(m.head)
}

// Loss is the mean cross-entropy, in nats, of predicting targets i64 [B,T] from ids i64
// [B,T]; the caller has shifted them. Targets equal to torch.IgnoreTarget do not count.
func (m *Llama) Loss(s *torch.Scope, ids, targets *torch.Tensor) *torch.Tensor {
	hidden := m.hidden(s, ids).Reshape(-1, int64(m.config.HiddenSize))
	return hidden.LinearCrossEntropy(m.head, targets.Reshape(-1))
}

// hidden is the network up to the head: [B,T] to [B,T,HiddenSize].
func (m *Llama) hidden(s *torch.Scope, ids *torch.Tensor) *torch.Tensor {
	positions := ids.Dim(1)
	if positions > int64(m.config.MaxPositionEmbeddings) {
		panic(&torch.Error{Op: "llama", Message: fmt.Sprintf("%d tokens, max_position_embeddings is %d",
			positions, m.config.MaxPositionEmbeddings)})
	}
	cos, sin := m.rotations(s, positions)
	x := m.embedding.Embedding(ids)
	for i := range m.blocks {
		x = m.attention(&m.blocks[i], x, cos, sin)
		x = m.feedForward(&m.blocks[i], x)
	}
	return x.RMSNorm(m.norm, m.config.RMSNormEps)
}

func (m *Llama) attention(b *block, x, cos, sin *torch.Tensor) *torch.Tensor {
	c := m.config
	batch, positions, width := x.Dim(0), x.Dim(1), int64(c.HeadDim)
	h := x.RMSNorm(b.inputNorm, c.RMSNormEps)
	split := func(t *torch.Tensor, heads int) *torch.Tensor {
		return t.Reshape(batch, positions, int64(heads), width)
	}
	q := split(h.Linear(b.query), c.NumAttentionHeads).RoPE(cos, sin)
	k := split(h.Linear(b.key), c.NumKeyValueHeads).RoPE(cos, sin)
	v := split(h.Linear(b.value), c.NumKeyValueHeads)
	mixed := q.CausalAttention(k, v, 1/math.Sqrt(float64(width)))
	return x.Add(mixed.Reshape(batch, positions, int64(c.NumAttentionHeads)*width).Linear(b.output))
}

func (m *Llama) feedForward(b *block, x *torch.Tensor) *torch.Tensor {
	h := x.RMSNorm(b.postNorm, m.config.RMSNormEps)
	return x.Add(h.Linear(b.gate).SwiGLU(h.Linear(b.up)).Linear(b.down))
}
