package llama

import (
	"github.com/psyche-go/psyche/learn/torch"
)

// biases contains the biases of a layer; nil: none.
type biases struct {
	query, key, value, output *torch.Tensor // [H·D], [KV·D] twice, [HiddenSize]
	gate, up, down            *torch.Tensor // [IntermediateSize] twice, [HiddenSize]
}

// takeBiases takes the biases in the config.
func (c Config) takeBiases(layer func(name string) *torch.Tensor) (b biases) {
	if c.Biases.QueryKeyValue {
		b.query, b.key, b.value = layer("self_attn.q_proj.bias"), layer("self_attn.k_proj.bias"), layer("self_attn.v_proj.bias")
	}
	if c.Biases.Output {
		b.output = layer("self_attn.o_proj.bias")
	}
	if c.Biases.FeedForward {
		b.gate, b.up, b.down = layer("mlp.gate_proj.bias"), layer("mlp.up_proj.bias"), layer("mlp.down_proj.bias")
	}
	return b
}

// biasShapes returns the shapes of a layer's biases by their names.
func biasShapes(c Config) map[string][]int64 {
	hidden, inner := int64(c.HiddenSize), int64(c.IntermediateSize)
	queries, keys := int64(c.NumAttentionHeads)*int64(c.HeadDim), int64(c.NumKeyValueHeads)*int64(c.HeadDim)
	all := map[string][]int64{}
	if c.Biases.QueryKeyValue {
		all["self_attn.q_proj.bias"], all["self_attn.k_proj.bias"], all["self_attn.v_proj.bias"] = []int64{queries}, []int64{keys}, []int64{keys}
	}
	if c.Biases.Output {
		all["self_attn.o_proj.bias"] = []int64{hidden}
	}
	if c.Biases.FeedForward {
		all["mlp.gate_proj.bias"], all["mlp.up_proj.bias"], all["mlp.down_proj.bias"] = []int64{inner}, []int64{inner}, []int64{hidden}
	}
	return all
}

// extras contains the norms of a layer that Llama does not have; nil: none.
type extras struct {
	query, key                *torch.Tensor // for each head [HeadDim], or for all [heads·HeadDim]
	sinks                     *torch.Tensor // a score for each head [NumAttentionHeads], not a norm
	afterAttention, afterFeed *torch.Tensor // [HiddenSize]
}

// normNames contains the names of the norms of a sublayer, for its input and its output.
type normNames struct{ before, after string }

// norms returns the names of the existing norms. post_attention_layernorm has one meaning in Llama
// and another in models with norms after.
func (n Norms) norms() (attention, feedForward normNames) {
	attention, feedForward = normNames{before: "input_layernorm.weight"}, normNames{before: "post_attention_layernorm.weight"}
	switch {
	case n.After && n.Halves:
		attention.after, feedForward.after = "post_self_attn_layernorm.weight", "post_mlp_layernorm.weight"
	case n.After:
		attention.after, feedForward.after = "post_attention_layernorm.weight", "post_feedforward_layernorm.weight"
		feedForward.before = "pre_feedforward_layernorm.weight"
	}
	if n.NotIn {
		attention.before, feedForward.before = "", ""
	}
	return attention, feedForward
}

const queryNorm, keyNorm = "self_attn.q_norm.weight", "self_attn.k_norm.weight"

// normShapes returns the shapes of a layer's norms by their names.
func normShapes(c Config) map[string][]int64 {
	all := map[string][]int64{}
	attention, feedForward := c.Norms.norms()
	for _, name := range []string{attention.before, attention.after, feedForward.before, feedForward.after} {
		if name != "" {
			all[name] = []int64{int64(c.HiddenSize)}
		}
	}
	if c.Sinks {
		all[sinksName] = []int64{int64(c.NumAttentionHeads)}
	}
	width := int64(c.HeadDim)
	switch {
	case c.Norms.Heads:
		all[queryNorm], all[keyNorm] = []int64{width}, []int64{width}
	case c.Norms.All:
		all[queryNorm], all[keyNorm] = []int64{int64(c.NumAttentionHeads) * width}, []int64{int64(c.NumKeyValueHeads) * width}
	}
	return all
}

// takeNorms takes the norms of a layer.
func (c Config) takeNorms(b *block, layer func(name string) *torch.Tensor) {
	get := func(name string) *torch.Tensor {
		if name == "" {
			return nil
		}
		return layer(name)
	}
	attention, feedForward := c.Norms.norms()
	b.attention.Norm, b.extra.afterAttention = get(attention.before), get(attention.after)
	b.norm, b.extra.afterFeed = get(feedForward.before), get(feedForward.after)
	if c.Norms.Heads || c.Norms.All {
		b.extra.query, b.extra.key = layer(queryNorm), layer(keyNorm)
	}
	if c.Sinks {
		b.extra.sinks = layer(sinksName)
	}
}

// fuse determines which sublayers of a layer are the same as Llama's. libtorch has fused operations
// for them.
func (b *block) fuse(c Config) {
	around := c.Norms
	around.Heads, around.All, around.Unit = false, false, false
	plain := around == Norms{} && c.Scales.Residual == 1 && c.Packed == Packed{}
	b.fusedAttention = plain && c.turnsWhole() && c.Norms == Norms{} && !c.Sinks && !b.layer.Still && !c.Biases.QueryKeyValue && !c.Biases.Output && c.Scales.ScoreCap == 0
	b.fusedFeed = plain && !c.Biases.FeedForward && !c.GELU && b.experts == nil
}

// linear returns a product with weights in the compute type, plus a bias if there is one.
func (m *Llama) linear(x, weight, bias *torch.Tensor) *torch.Tensor {
	y := x.Linear(weight.To(m.options.Compute))
	if bias == nil {
		return y
	}
	return y.Add(bias.To(m.options.Compute))
}

// normal returns x after a norm, if there is one.
func (m *Llama) normal(x, weight *torch.Tensor) *torch.Tensor {
	switch {
	case weight == nil:
		return x
	case m.config.Norms.OneMore:
		weight = weight.AddScalar(1)
	}
	return x.RMSNorm(weight, m.config.RMSNormEps)
}

// add adds the output of a sublayer to x, after the norm of the output.
func (m *Llama) add(x, half, after *torch.Tensor) *torch.Tensor {
	half = m.normal(half, after)
	if scale := m.config.Scales.Residual; scale != 1 {
		half = half.MulScalar(scale)
	}
	return x.Add(half)
}

// attentionBlock adds the attention of a layer to x.
func (m *Llama) attentionBlock(s *torch.Scope, b *block, x *torch.Tensor, at turned) *torch.Tensor {
	if b.fusedAttention && !b.slides(x.Dim(1)) {
		c, r := m.config, at.of(b.layer)
		return x.AttentionBlock(b.attention, r.cos, r.sin, int64(c.HeadDim), c.Scales.Score, c.RMSNormEps, m.halvesAgain())
	}
	return m.add(x, m.attention(s, b, x, at), b.extra.afterAttention)
}

// attention returns the attention of a layer for x [B,T,HiddenSize], in the same shape, without the
// residual.
func (m *Llama) attention(s *torch.Scope, b *block, x *torch.Tensor, at turned) *torch.Tensor {
	q, k, v := m.project(s, b, x, at)
	return m.output(b, m.attend(s, b, q, k, v))
}

// project returns the queries, keys and values of a layer, [B,T,heads,HeadDim].
func (m *Llama) project(s *torch.Scope, b *block, x *torch.Tensor, at turned) (q, k, v *torch.Tensor) {
	B, count := x.Dim(0), x.Dim(1)
	normal, w := m.normal(x, b.attention.Norm), b.unpacked(m.config).attention
	heads := func(weight, bias, norm *torch.Tensor) *torch.Tensor {
		y := m.linear(normal, weight, bias)
		if m.config.Norms.All {
			y = m.normal(y, norm)
		}
		y = y.Reshape(B, count, -1, int64(m.config.HeadDim))
		if m.config.Norms.Heads {
			y = m.normal(y, norm)
		}
		return y
	}
	q, k = heads(w.Query, b.bias.query, b.extra.query), heads(w.Key, b.bias.key, b.extra.key)
	if !b.layer.Still {
		r := at.of(b.layer)
		q, k = m.turn(s, q, r), m.turn(s, k, r)
		if m.config.Norms.Unit {
			one := s.Full(torch.F32, 1, int64(m.config.HeadDim))
			q, k = q.RMSNorm(one, m.config.RMSNormEps), k.RMSNorm(one, m.config.RMSNormEps)
		}
	} else if at.temper != nil {
		q = q.To(torch.F32).Mul(at.temper.Reshape(1, count, 1, 1)).To(q.DType())
	}
	return q, k, heads(w.Value, b.bias.value, nil)
}

// output returns the projection of the heads' output.
func (m *Llama) output(b *block, mixed *torch.Tensor) *torch.Tensor {
	return m.linear(mixed.Reshape(mixed.Dim(0), mixed.Dim(1), -1), b.attention.Output, b.bias.output)
}

// feedForwardBlock adds the feed-forward layer to x.
func (m *Llama) feedForwardBlock(s *torch.Scope, b *block, x *torch.Tensor) *torch.Tensor {
	if b.fusedFeed {
		return x.FeedForwardBlock(b.norm, b.gate, b.up, b.down, m.config.RMSNormEps, m.halvesAgain())
	}
	return m.add(x, m.feedForward(s, b, x), b.extra.afterFeed)
}

// feedForward returns the output of the feed-forward layer for x [B,T,HiddenSize], in the same
// shape, without the residual.
func (m *Llama) feedForward(s *torch.Scope, b *block, x *torch.Tensor) *torch.Tensor {
	normal := m.normal(x, b.norm)
	if b.experts != nil {
		return m.mix(s, b.experts, normal)
	}
	w := b.unpacked(m.config)
	gate, up := m.linear(normal, w.gate, b.bias.gate), m.linear(normal, w.up, b.bias.up)
	if m.config.GELU {
		return m.linear(gelu(gate).Mul(up), b.down, b.bias.down)
	}
	return m.linear(gate.SwiGLU(up), b.down, b.bias.down)
}
