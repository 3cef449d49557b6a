// What the fused parts of a transformer are built of, on tensors: each piece runs as a
// loop of kernels.h over f32 and bf16 on the CPU, and as libtorch operations elsewhere,
// where no address of a tensor's memory is used.
#pragma once

#include "kernels.h"
#include "shim.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

namespace psyche {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Whether the loops of kernels.h can run on these tensors, all contiguous.
bool plain(const Tensor &t);

// Calls f with a null pointer of the kernels' type for t's elements: float or bf16.
template <class F> void with_elements(const Tensor &t, F &&f) {
  if (t.scalar_type() == at::kFloat) {
    f(static_cast<float *>(nullptr));
  } else {
    f(static_cast<kernels::bf16 *>(nullptr));
  }
}

template <class E> E *data(const Tensor &t) { return static_cast<E *>(t.data_ptr()); }

// t in that element type; the same tensor if it has it.
Tensor cast(const Tensor &t, at::ScalarType type);

// y and 1/sqrt(mean(x^2)+epsilon) of every row; x [rows,n], weight [n] f32.
// Refuses a weight that the loops over x would misread.
void check_norm(const Tensor &weight, const Tensor &x);

std::pair<Tensor, Tensor> norm_forward(const Tensor &x, const Tensor &weight, double epsilon);
// Gradients by x (plus extra, if defined) and by the weight, f32.
std::pair<Tensor, Tensor> norm_backward(const Tensor &g, const Tensor &x, const Tensor &weight, const Tensor &inverse,
                                        const Tensor &extra);

// silu(gate) * up, of pairs [rows,2n] that hold gate and up side by side.
Tensor swiglu_forward(const Tensor &pairs);
// Replaces pairs by their gradients and g [rows,n] by what swiglu_forward gave.
void swiglu_backward(Tensor &pairs, Tensor &g);

// softmax(scale*scores) in place; scores [heads,n*groups,keys], where row t*groups+g of a
// head sees the first seen+t keys.
void softmax_causal(Tensor &scores, int64_t seen, int64_t groups, double scale);
// dp becomes the gradient by the scores before scaling.
void softmax_causal_backward(const Tensor &p, Tensor &dp, int64_t seen, int64_t groups, double scale);

// Rotates the heads of x [B,T,H,D], any strides, into out, likewise.
void rotate(const Tensor &x, const Tensor &cos, const Tensor &sin, int direction, Tensor out);

// ---- attention elsewhere ----

// Whether attention of this tensor is libtorch's scaled_dot_product_attention: not on the
// CPU, nor with a libtorch before 2.0, which has none.
bool has_sdpa(const Tensor &q);
// Causal attention of q [B,T,H,D], k [B,S,KV,D] and v [B,S,KV,E] to [B,T,H,E], recorded by
// autograd like any operation; T is S or 1. The kernels that libtorch has for CUDA hold no
// [T,S] matrix.
Tensor sdpa(const Tensor &q, const Tensor &k, const Tensor &v, double scale);

// ---- weights ----

// The rows of all weights, one below the other, in that element type. Nothing is copied
// when they lie like this in memory and have the type.
Tensor packed(const std::vector<Tensor> &weights, at::ScalarType type);

// Adds a^T b, computed in their type, to the gradients of weights (leaves, f32, packed as
// above): a [N,rows of all], b [N,columns]. The gradients stay f32 whatever a and b are.
void add_product(const std::vector<Tensor> &weights, const Tensor &a, const Tensor &b);
// Adds to the gradient of a leaf, taking g over if it is the first.
void add_gradient(const Tensor &weight, const Tensor &g);

} // namespace psyche
