package llama

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/learn/model/weights"
	"github.com/psyche-go/psyche/learn/torch"
)

// ErrSplit means that a model cannot be split among the given number of engines.
var ErrSplit = errors.New("model cannot be split")

// Split is a model in which several engines each compute a part of every layer (tensor parallelism:
// Shoeybi et al., arXiv 1909.08053): some of the heads, and a part of the inner width of the
// feed-forward layer. The input of a sublayer (attention or feed-forward) is the same on all
// engines. The outputs of the engines are added in the order of the engines, so that the result
// does not depend on their speed. The first engine computes the embedding and the head.
//
// A Split only computes gradients. Its methods must be called one at a time, outside Do.
type Split struct {
	whole  *Llama
	shards []*shard
}

// shard is the part of one engine, with views of the whole model's weights that have separate
// gradients.
type shard struct {
	// model has the engine, the rotary tables, the part of every layer (rows of all matrices,
	// columns of output and down) and, on the first engine, embedding and head.
	model  *Llama
	pieces []piece
}

// piece is a view of the parameter with a name: of the whole, or from first on along a dimension.
type piece struct {
	name   string
	tensor *torch.Tensor
	whole  bool
	dim    int
	first  int64
}

// Split splits the model among engines of its device, which may include its own engine. The weights
// are not moved, and must not change while gradients are computed.
func (m *Llama) Split(ctx context.Context, engines []*torch.Engine) (*Split, error) {
	n, c := len(engines), m.config
	switch {
	case n < 1 || c.NumKeyValueHeads%n != 0 || c.IntermediateSize%n != 0:
		return nil, fmt.Errorf("%w: num_key_value_heads %d and intermediate_size %d must be multiples of the %d devices",
			ErrSplit, c.NumKeyValueHeads, c.IntermediateSize, n)
	case c.whole() != "":
		return nil, fmt.Errorf("%w: the model has %s", ErrSplit, c.whole())
	case m.options.Recompute:
		return nil, fmt.Errorf("%w: recomputing activations to save memory is not possible", ErrSplit)
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

// take takes part i of n of the views.
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
		b, name := &m.blocks[l], func(rest string) string { return weights.InLayer(l, rest) }
		own := block{layer: b.layer, attention: torch.AttentionWeights{
			Norm:   whole(name("input_layernorm.weight"), b.attention.Norm),
			Query:  part(name("self_attn.q_proj.weight"), b.attention.Query, 0),
			Key:    part(name("self_attn.k_proj.weight"), b.attention.Key, 0),
			Value:  part(name("self_attn.v_proj.weight"), b.attention.Value, 0),
			Output: part(name("self_attn.o_proj.weight"), b.attention.Output, 1),
		}}
		own.norm = whole(name("post_attention_layernorm.weight"), b.norm)
		own.gate = part(name("mlp.gate_proj.weight"), b.gate, 0)
		own.up = part(name("mlp.up_proj.weight"), b.up, 0)
		own.down = part(name("mlp.down_proj.weight"), b.down, 1)
		if m.config.Biases.QueryKeyValue {
			own.bias.query = part(name("self_attn.q_proj.bias"), b.bias.query, 0)
			own.bias.key = part(name("self_attn.k_proj.bias"), b.bias.key, 0)
			own.bias.value = part(name("self_attn.v_proj.bias"), b.bias.value, 0)
		}
		if m.config.Norms.Heads {
			own.extra.query, own.extra.key = whole(name(queryNorm), b.extra.query), whole(name(keyNorm), b.extra.key)
		}
		s.model.blocks = append(s.model.blocks, own)
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

// Close frees the resources of the split model.
func (p *Split) Close(ctx context.Context) error {
	return p.onAll(ctx, false, func(_ int, _ *torch.Scope, s *shard) error {
		for _, piece := range s.pieces {
			piece.tensor.Free()
		}
		s.pieces = nil
		s.model.rotation.Free()
		s.model.localRotation.Free()
		return nil
	})
}

// onAll runs fn on all engines concurrently and waits for all of them.
func (p *Split) onAll(ctx context.Context, grad bool, fn func(i int, scope *torch.Scope, s *shard) error) error {
	var group errgroup.Group
	for i, s := range p.shards {
		group.Go(func() error {
			return s.model.engine.Do(ctx, grad, func(scope *torch.Scope) error { return fn(i, scope, s) })
		})
	}
	return group.Wait()
}

// whole names the part of the model that cannot be split; empty: none.
func (c Config) whole() string {
	switch {
	case c.Norms.All, c.Norms.After:
		return "norms over values from all devices"
	case c.Biases.Output, c.Biases.FeedForward:
		return "biases of attention outputs or of the feed-forward layer"
	case c.Experts.Count > 0:
		return "experts"
	case c.Packed != Packed{}:
		return "packed matrices"
	}
	return ""
}
