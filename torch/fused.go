package torch

/*
#include "bind.h"
*/
import "C"

// IgnoreTarget marks a target that does not count in a cross-entropy.
const IgnoreTarget = -100

// RMSNorm is weight · t / sqrt(mean(t²) + epsilon) over the last dimension (Zhang and
// Sennrich, arXiv 1910.07467). The mean is taken in f32.
func (t *Tensor) RMSNorm(weight *Tensor, epsilon float64) *Tensor {
	return t.result("RMSNorm", C.pt_rms_norm(t.raw(), weight.raw(), C.double(epsilon)))
}

// RoPE rotates t [B,T,H,D] by position (Su et al., arXiv 2104.09864): the pair of
// elements (i, i+D/2), as Hugging Face orders them, turns by the angle whose cos and sin
// are at [position, i] of the tables [T,D/2].
func (t *Tensor) RoPE(cos, sin *Tensor) *Tensor {
	return t.result("RoPE", C.pt_rope(t.raw(), cos.raw(), sin.raw()))
}

// CausalAttention is softmax(scale·t·kᵀ)·v, each query seeing its own and earlier
// positions: t [B,T,H,D], k and v [B,S,KV,D] to [B,T,H,D]. H is a multiple of KV; query
// head h uses key head h/(H/KV). With S > T the queries are the last T positions.
func (t *Tensor) CausalAttention(k, v *Tensor, scale float64) *Tensor {
	return t.result("CausalAttention", C.pt_causal_attention(t.raw(), k.raw(), v.raw(), C.double(scale)))
}

// SwiGLU is SiLU(t) · up (Shazeer, arXiv 2002.05202).
func (t *Tensor) SwiGLU(up *Tensor) *Tensor {
	return t.result("SwiGLU", C.pt_swiglu(t.raw(), up.raw()))
}

// LinearCrossEntropy is t.Linear(weight).CrossEntropy(targets) without ever holding all
// logits: t [N,H], weight [V,H], targets i64 [N], the mean over targets other than
// [IgnoreTarget] (0 if there are none). Backward may follow once.
func (t *Tensor) LinearCrossEntropy(weight, targets *Tensor) *Tensor {
	return t.linearCrossEntropy(weight, targets, 0)
}

// linearCrossEntropy makes the logits of so many rows at a time; 0 chooses.
func (t *Tensor) linearCrossEntropy(weight, targets *Tensor, rows int64) *Tensor {
	return t.result("LinearCrossEntropy",
		C.pt_linear_cross_entropy(t.raw(), weight.raw(), targets.raw(), IgnoreTarget, C.int64_t(rows)))
}

// AdamW are the constants of the optimizer.
type AdamW struct {
	Beta1, Beta2 float64
	Epsilon      float64
	WeightDecay  float64 // decoupled: the weights shrink by rate·WeightDecay each step
}

// Step applies one step (Loshchilov and Hutter, arXiv 1711.05101) to parameter, with its
// gradient and the running means m and v, which start at zero. step counts from 1.
func (a AdamW) Step(parameter, grad, m, v *Tensor, rate float64, step int64) {
	check("AdamW.Step", C.pt_adamw_step(parameter.raw(), grad.raw(), m.raw(), v.raw(), C.double(rate),
		C.double(a.Beta1), C.double(a.Beta2), C.double(a.Epsilon), C.double(a.WeightDecay), C.int64_t(step)))
}
