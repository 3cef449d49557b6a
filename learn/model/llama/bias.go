package llama

import (
	"math"

	"github.com/psyche-go/psyche/learn/torch"
)

// biases are what the products of a layer have added to them; nil: nothing.
type biases struct {
	query, key, value, output *torch.Tensor // [H·D], [KV·D] twice, [HiddenSize]
	gate, up, down            *torch.Tensor // [IntermediateSize] twice, [HiddenSize]
}

// takeBiases gets those that the config names.
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

// biasShapes are the shapes of a layer's biases by their names.
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

// linear is a product with weights in the type that is computed in, and a bias if there is one.
func (m *Llama) linear(x, weight, bias *torch.Tensor) *torch.Tensor {
	y := x.Linear(weight.To(m.options.Compute))
	if bias == nil {
		return y
	}
	return y.Add(bias.To(m.options.Compute))
}

// attentionBlock is torch.AttentionBlock with the layer's biases.
func (m *Llama) attentionBlock(b *block, x, cos, sin *torch.Tensor) *torch.Tensor {
	width, epsilon := int64(m.config.HeadDim), m.config.RMSNormEps
	scale := 1 / math.Sqrt(float64(width))
	if biased := m.config.Biases; !biased.QueryKeyValue && !biased.Output {
		return x.AttentionBlock(b.attention, cos, sin, width, scale, epsilon, m.options.Recompute)
	}
	q, k, v := m.project(b, x, cos, sin)
	return m.output(b, x, q.CausalAttention(k, v, scale))
}

// project gives the queries, keys and values of a layer, [B,T,heads,HeadDim].
func (m *Llama) project(b *block, x, cos, sin *torch.Tensor) (q, k, v *torch.Tensor) {
	B, count := x.Dim(0), x.Dim(1)
	normal := x.RMSNorm(b.attention.Norm, m.config.RMSNormEps)
	heads := func(weight, bias *torch.Tensor) *torch.Tensor {
		return m.linear(normal, weight, bias).Reshape(B, count, -1, int64(m.config.HeadDim))
	}
	q, k = heads(b.attention.Query, b.bias.query).RoPE(cos, sin), heads(b.attention.Key, b.bias.key).RoPE(cos, sin)
	return q, k, heads(b.attention.Value, b.bias.value)
}

// output adds to x what the heads have mixed.
func (m *Llama) output(b *block, x, mixed *torch.Tensor) *torch.Tensor {
	return x.Add(m.linear(mixed.Reshape(x.Dim(0), x.Dim(1), -1), b.attention.Output, b.bias.output))
}

// feedForwardBlock is torch.FeedForwardBlock with the layer's biases.
func (m *Llama) feedForwardBlock(b *block, x *torch.Tensor, recompute bool) *torch.Tensor {
	epsilon := m.config.RMSNormEps
	if !m.config.Biases.FeedForward {
		return x.FeedForwardBlock(b.norm, b.gate, b.up, b.down, epsilon, recompute)
	}
	normal := x.RMSNorm(b.norm, epsilon)
	inner := m.linear(normal, b.gate, b.bias.gate).SwiGLU(m.linear(normal, b.up, b.bias.up))
	return x.Add(m.linear(inner, b.down, b.bias.down))
}
