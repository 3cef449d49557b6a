package llama

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/learn/torch"
)

// ErrSplit says that a model cannot be divided among so many engines.
var ErrSplit = errors.New("model cannot be split")

// Split is a model of which several engines compute a part of every layer each (Shoeybi
// et al., arXiv 1909.08053): some of the heads, and some of the inner width of the
// feed-forward layer. What goes into a half of a layer is the same on all engines; what
// comes out is added up in the order of the engines, so that the result does not depend
// on their speed. Embedding and head are computed by the first engine.
//
// It computes gradients only. Its methods are called one at a time, outside Do.
type Split struct {
	whole  *Llama
	shards []*shard
}

// shard is the part of one engine, with views of the whole model's weights that have
// gradients of their own.
type shard struct {
	model  *Llama // for its engine, its rotary tables and, on the first, the ends
	pieces []piece
	layers []shardLayer
}

// shardLayer holds the part of a layer: rows of all matrices, columns of output and down.
type shardLayer struct {
	norm, query, key, value, output *torch.Tensor
	feedNorm, gate, up, down        *torch.Tensor
}

// piece is a view of the parameter of that name: of the whole, or from first on along a
// dimension.
type piece struct {
	name   string
	tensor *torch.Tensor
	whole  bool
	dim    int
	first  int64
}

// Split divides the model among engines of its device. Its own engine may be among them.
// The weights stay where they are; they must not change while gradients are computed.
func (m *Llama) Split(ctx context.Context, engines []*torch.Engine) (*Split, error) {
	n, c := len(engines), m.config
	switch {
	case n < 1 || c.NumKeyValueHeads%n != 0 || c.IntermediateSize%n != 0:
		return nil, fmt.Errorf("%w: num_key_value_heads %d and intermediate_size %d must be multiples of the %d devices",
			ErrSplit, c.NumKeyValueHeads, c.IntermediateSize, n)
	case c.Biases != Biases{}:
		return nil, fmt.Errorf("%w: its layers have biases", ErrSplit)
	case m.options.Recompute:
		return nil, fmt.Errorf("%w: it cannot compute activations twice to save memory", ErrSplit)
	}
	p := &Split{whole: m}
	for i, engine := range engines {
		s := &shard{model: &Llama{config: c, options: m.options, engine: engine}}
		p.shards = append(p.shards, s)
		err := engine.Do(ctx, false, func(scope *torch.Scope) error {
			s.take(scope, m, int64(i), int64(n))
			return nil
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("split: %w", err), p.Close(context.WithoutCancel(ctx)))
		}
	}
	return p, nil
}

// take makes part i of n of the views.
func (s *shard) take(scope *torch.Scope, m *Llama, i, n int64) {
	part := func(name string, from *torch.Tensor, dim int) *torch.Tensor {
		size := from.Dim(dim) / n
		t := scope.Keep(scope.Alias(from).Narrow(dim, i*size, size).Detach()).SetRequiresGrad(true)
		s.pieces = append(s.pieces, piece{name: name, tensor: t, dim: dim, first: i * size})
		return t
	}
	whole := func(name string, from *torch.Tensor) *torch.Tensor {
		t := scope.Keep(scope.Alias(from)).SetRequiresGrad(true)
		s.pieces = append(s.pieces, piece{name: name, tensor: t, whole: true})
		return t
	}
	for l := range m.blocks {
		b, name := &m.blocks[l], func(rest string) string { return layerName(l, rest) }
		s.layers = append(s.layers, shardLayer{
			norm:     whole(name("input_layernorm.weight"), b.attention.Norm),
			query:    part(name("self_attn.q_proj.weight"), b.attention.Query, 0),
			key:      part(name("self_attn.k_proj.weight"), b.attention.Key, 0),
			value:    part(name("self_attn.v_proj.weight"), b.attention.Value, 0),
			output:   part(name("self_attn.o_proj.weight"), b.attention.Output, 1),
			feedNorm: whole(name("post_attention_layernorm.weight"), b.norm),
			gate:     part(name("mlp.gate_proj.weight"), b.gate, 0),
			up:       part(name("mlp.up_proj.weight"), b.up, 0),
			down:     part(name("mlp.down_proj.weight"), b.down, 1),
		})
	}
	if i > 0 {
		return
	}
	s.model.embedding = whole("model.embed_tokens.weight", m.embedding)
	s.model.norm = whole("model.norm.weight", m.norm)
	s.model.head = s.model.embedding
	if !m.config.TieWordEmbeddings {
		s.model.head = whole("lm_head.weight", m.head)
	}
}

// Close frees what is the split model's own.
func (p *Split) Close(ctx context.Context) error {
	return p.onAll(ctx, false, func(_ int, _ *torch.Scope, s *shard) error {
		for _, piece := range s.pieces {
			piece.tensor.Free()
		}
		s.pieces = nil
		s.model.rotation.Free()
		return nil
	})
}

// onAll runs fn on all engines at the same time and waits for all of them.
func (p *Split) onAll(ctx context.Context, grad bool, fn func(i int, scope *torch.Scope, s *shard) error) error {
	var group errgroup.Group
	for i, s := range p.shards {
		group.Go(func() error {
			return s.model.engine.Do(ctx, grad, func(scope *torch.Scope) error { return fn(i, scope, s) })
		})
	}
	return group.Wait()
}

// attention is the shard's part of the attention of a layer, x [B,T,HiddenSize] to the
// same, without the residual.
func (s *shard) attention(scope *torch.Scope, layer int, x *torch.Tensor) *torch.Tensor {
	l, c := &s.layers[layer], s.model.config
	B, T, width := x.Dim(0), x.Dim(1), int64(c.HeadDim)
	cos, sin := s.model.rotations(scope, 0, T)
	normal := x.RMSNorm(l.norm, c.RMSNormEps)
	heads := func(weight *torch.Tensor) *torch.Tensor { return s.linear(normal, weight).Reshape(B, T, -1, width) }
	mixed := heads(l.query).RoPE(cos, sin).CausalAttention(heads(l.key).RoPE(cos, sin), heads(l.value), 1/math.Sqrt(float64(width)))
	return s.linear(mixed.Reshape(B, T, -1), l.output)
}

// feedForward is the shard's part of the feed-forward layer, likewise.
func (s *shard) feedForward(layer int, x *torch.Tensor) *torch.Tensor {
	l := &s.layers[layer]
	normal := x.RMSNorm(l.feedNorm, s.model.config.RMSNormEps)
	return s.linear(s.linear(normal, l.gate).SwiGLU(s.linear(normal, l.up)), l.down)
}

func (s *shard) linear(x, weight *torch.Tensor) *torch.Tensor {
	return x.Linear(weight.To(s.model.options.Compute))
}
