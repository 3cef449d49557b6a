package torch

/*
#include "bind.h"
*/
import "C"

// IgnoreTarget marks a target that the cross-entropy ignores.
const IgnoreTarget = -100

// RMSNorm is weight · t / sqrt(mean(t²) + epsilon) over the last dimension (Zhang and
// Sennrich, arXiv 1910.07467). The mean is taken in f32.
func (t *Tensor) RMSNorm(weight *Tensor, epsilon float64) *Tensor {
	return t.result("RMSNorm", C.pt_rms_norm(t.raw(), weight.raw(), C.double(epsilon)))
}

// RoPE rotates t [B,T,H,D] by position (Su et al., arXiv 2104.09864). It rotates the pair of
// elements (i, i+D/2), in Hugging Face's order, by the angle whose cosine and sine are at
// [position, i] of the tables [T,D/2].
func (t *Tensor) RoPE(cos, sin *Tensor) *Tensor {
	return t.result("RoPE", C.pt_rope(t.raw(), cos.raw(), sin.raw()))
}

// CausalAttention is softmax(scale·t·kᵀ)·v, where each query uses only its own and earlier
// positions: t [B,T,H,D], k and v [B,S,KV,D] to [B,T,H,D]. H is a multiple of KV, and query head h
// uses key head h/(H/KV). If S > T, the queries are the last T positions.
func (t *Tensor) CausalAttention(k, v *Tensor, scale float64) *Tensor {
	return t.result("CausalAttention", C.pt_causal_attention(t.raw(), k.raw(), v.raw(), C.double(scale)))
}

// SwiGLU is SiLU(t) · up (Shazeer, arXiv 2002.05202).
func (t *Tensor) SwiGLU(up *Tensor) *Tensor {
	return t.result("SwiGLU", C.pt_swiglu(t.raw(), up.raw()))
}

// Embed returns the rows of t [V,N] at ids, converted to the given type. It combines Embedding and
// To, and its gradient changes only those rows. t must be a leaf.
func (t *Tensor) Embed(ids *Tensor, dtype DType) *Tensor {
	return t.result("Embed", C.pt_embed(t.raw(), ids.raw(), C.int(dtype)))
}

// AttentionWeights are the weights of the attention sublayer of a layer, as f32 leaves. If Query,
// Key and Value are adjacent in memory, AttentionBlock multiplies them as one matrix.
type AttentionWeights struct {
	Norm       *Tensor // [N]
	Query      *Tensor // [H·D,N]
	Key, Value *Tensor // [KV·D,N]
	Output     *Tensor // [N,H·D]
}

// AttentionBlock is t + Attention(RMSNorm(t)) for t [B,T,N]: projections to heads of width D, RoPE
// with the tables cos and sin [T,D/2], CausalAttention with scale, and the output's projection. It
// computes in the type of t; the gradients of the weights are f32. With recompute it keeps only t
// for the backward pass and computes the rest again. Backward may be called once.
func (t *Tensor) AttentionBlock(w AttentionWeights, cos, sin *Tensor, width int64, scale, epsilon float64, recompute bool) *Tensor {
	weights := C.pt_attention_weights{
		norm: w.Norm.raw(), query: w.Query.raw(), key: w.Key.raw(), value: w.Value.raw(), output: w.Output.raw(),
	}
	return t.result("AttentionBlock", C.pt_attention_block(t.raw(), weights, cos.raw(), sin.raw(), C.int64_t(width),
		C.double(scale), C.double(epsilon), flag(recompute)))
}

// FeedForwardBlock is t + down·SwiGLU(gate·n, up·n) with n = RMSNorm(t), for t [...,N], gate and up
// [M,N], down [N,M], f32 leaves. Its types, gradients and recompute are like AttentionBlock's.
func (t *Tensor) FeedForwardBlock(norm, gate, up, down *Tensor, epsilon float64, recompute bool) *Tensor {
	return t.result("FeedForwardBlock", C.pt_feed_forward_block(t.raw(), norm.raw(), gate.raw(), up.raw(), down.raw(),
		C.double(epsilon), flag(recompute)))
}

// LinearCrossEntropy is t.Linear(weight).CrossEntropy(targets), but never has all logits in memory.
// t is [N,H], weight [V,H], targets i64 [N]. The result is the mean over targets other than
// [IgnoreTarget], or 0 if there are none. Backward may be called once. The caller must check that
// all other targets are in [0,V): only the CPU refuses them, because a device's answer would take a
// wait.
func (t *Tensor) LinearCrossEntropy(weight, targets *Tensor) *Tensor {
	return t.linearCrossEntropy(weight, targets, 0, 0)
}

// LinearCrossEntropyShare is LinearCrossEntropy, but the backward pass computes share times the
// gradients, without another pass over them. share is not 0. The gradient of the result must be 1, as
// in Backward on the result itself or on its sum with other losses.
func (t *Tensor) LinearCrossEntropyShare(weight, targets *Tensor, share float64) *Tensor {
	if share == 0 {
		panic(&Error{Op: "LinearCrossEntropyShare", Message: "the share is 0"})
	}
	return t.linearCrossEntropy(weight, targets, 0, share)
}

// linearCrossEntropy computes the logits of the given number of rows at a time; 0 chooses the
// number. If share is 0, the result may have any gradient.
func (t *Tensor) linearCrossEntropy(weight, targets *Tensor, rows int64, share float64) *Tensor {
	return t.result("LinearCrossEntropy",
		C.pt_linear_cross_entropy(t.raw(), weight.raw(), targets.raw(), IgnoreTarget, C.int64_t(rows), C.double(share)))
}

// AdamW contains the constants of the optimizer.
type AdamW struct {
	Beta1, Beta2 float64
	Epsilon      float64
	WeightDecay  float64 // decoupled: the weights shrink by rate·WeightDecay each step
}

// Step applies one step (Loshchilov and Hutter, arXiv 1711.05101) to parameter, with its
// gradient and the running means m and v, which start at zero. step counts from 1.
func (a AdamW) Step(parameter, grad, m, v *Tensor, rate float64, step int64) {
	defer Conversions{[]*Tensor{parameter}}.Changed() // on a CPU, libtorch does not see the change
	check("AdamW.Step", C.pt_adamw_step(parameter.raw(), grad.raw(), m.raw(), v.raw(), C.double(rate),
		C.double(a.Beta1), C.double(a.Beta2), C.double(a.Epsilon), C.double(a.WeightDecay), C.int64_t(step)))
}
