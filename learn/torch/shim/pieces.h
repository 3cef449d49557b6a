// The building blocks of the fused parts of a transformer. Each runs as a loop of kernels.h for f32
// and bf16 on the CPU, as a kernel of cuda/pieces.cu on a device if there is a function to launch it,
// and as libtorch operations elsewhere. Those operations use no address of a tensor's memory.
#pragma once

#include "kernels.h"
#include "launches.h"
#include "products.h"
#include "shim.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

namespace psyche {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Reports whether the loops of kernels.h can run on these tensors, which must be contiguous.
bool plain(const Tensor &t);

// Calls f with a null pointer of the kernels' type for t's elements: float or bf16.
template <class F> void with_elements(const Tensor &t, F &&f) {
  if (t.scalar_type() == at::kFloat) {
    f(static_cast<float *>(nullptr));
  } else {
    f(static_cast<kernels::bf16 *>(nullptr));
  }
}

// Returns a conversion of t to another element type.
Tensor converted(const Tensor &t, at::ScalarType type);
// sum += g, for any types.
void accumulate(const Tensor &sum, const Tensor &g);

// Refuses a weight that the loops over x would misread.
void check_norm(const Tensor &weight, const Tensor &x);

// Returns y and 1/sqrt(mean(x^2)+epsilon) of every row; x [rows,n], weight [n] f32.
std::pair<Tensor, Tensor> norm_forward(const Tensor &x, const Tensor &weight, double epsilon);
// Returns the gradients with respect to x (plus extra, if defined) and the weight, in f32.
std::pair<Tensor, Tensor> norm_backward(const Tensor &g, const Tensor &x, const Tensor &weight, const Tensor &inverse,
                                        const Tensor &extra);

// Returns the gradient with respect to x, and adds the gradient with respect to the weight, a leaf, to
// the leaf's gradient.
Tensor norm_backward_to(const Tensor &weight, const Tensor &g, const Tensor &x, const Tensor &inverse, const Tensor &extra);

// silu(gate) * up, for pairs [rows,2n] that hold gate and up side by side.
Tensor swiglu_forward(const Tensor &pairs);
// Replaces pairs by their gradients, and g [rows,n] by the result of swiglu_forward.
void swiglu_backward(Tensor &pairs, Tensor &g);

// softmax(scale*scores) in place, for scores [heads,n*groups,keys]. Row t*groups+g of a head sees
// the first seen+t keys.
void softmax_causal(Tensor &scores, int64_t seen, int64_t groups, double scale);
// Replaces dp by the gradient with respect to the scores before scaling.
void softmax_causal_backward(const Tensor &p, Tensor &dp, int64_t seen, int64_t groups, double scale);

// Rotates the heads of x [B,T,H,D] into out. Both may have any strides.
void rotate(const Tensor &x, const Tensor &cos, const Tensor &sin, int direction, Tensor out);
// Rotates or copies several heads, on devices in one launch.
void rotate_all(const std::vector<launches::Heads> &list, const Tensor &cos, const Tensor &sin, int direction);

// ---- attention on other devices ----

// Reports whether attention of this tensor uses libtorch's scaled_dot_product_attention. The CPU
// does not use it, and libtorch before 2.0 does not have it.
bool has_sdpa(const Tensor &q);
// Causal attention of q [B,T,H,D], k [B,S,KV,D] and v [B,S,KV,E] to [B,T,H,E]. Autograd records it
// like any operation. T must be S or 1. libtorch's CUDA kernels do not hold a [T,S] matrix.
Tensor sdpa(const Tensor &q, const Tensor &k, const Tensor &v, double scale);

// ---- weights ----

// Returns the rows of all weights, stacked, in the given element type. It copies nothing if the
// weights are already adjacent in memory and have that type.
Tensor packed(const std::vector<Tensor> &weights, at::ScalarType type);

// Adds a^T b, computed in their type, to the gradients of weights (leaves, f32, packed as above): a
// [N,rows of all], b [N,columns]. The gradients stay f32 for any type of a and b.
void add_product(const std::vector<Tensor> &weights, const Tensor &a, const Tensor &b);
// Adds g to the gradient of a leaf. If the leaf has no gradient yet, g becomes its gradient.
void add_gradient(const Tensor &weight, const Tensor &g);

} // namespace psyche
