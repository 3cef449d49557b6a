// The building blocks of pieces.h as kernels for devices: the kernels of cuda/pieces.cu. This process
// has them if the program passed a function that launches them.
#pragma once

#include "shim.h"

#include <initializer_list>
#include <vector>

namespace psyche::launches {

using at::Tensor;

// Reports whether the kernels can run on these tensors of at least one dimension, whose last dimension
// has a number of columns. The elements of the first are f32 or bf16.
bool fit(const Tensor &first, std::initializer_list<Tensor> others = {});

std::pair<Tensor, Tensor> norm_forward(const Tensor &x, const Tensor &weight, double epsilon);
// Adds the gradient of the weight to sum, or replaces it.
Tensor norm_backward(const Tensor &g, const Tensor &x, const Tensor &weight, const Tensor &inverse, const Tensor &extra, Tensor &sum,
                     bool add);

Tensor swiglu(const Tensor &pairs);
void swiglu_backward(Tensor &pairs, Tensor &g);

// Heads x [B,T,H,D] and their destination. They are rotated, or only copied unless turns is set.
struct Heads {
  Tensor x, out;
  bool turns;
};

// Reports whether one launch can process the list.
bool fit(const std::vector<Heads> &list, const Tensor &cos, const Tensor &sin);
void rotate(const std::vector<Heads> &list, const Tensor &cos, const Tensor &sin, int direction);

// Returns the number of targets other than ignore, at least 1, as an f32 of the device.
Tensor count(const Tensor &targets, int64_t ignore);
// Writes the losses of rows [rows,V], divided by count. Unless slope is 0, the rows become slope times
// their gradient. A target that is neither ignore nor in [0,V) makes the loss NaN.
void cross_entropy(Tensor &logits, const Tensor &targets, const Tensor &count, int64_t ignore, double slope, Tensor losses);

// Returns the rows of an f32 table with ids, in the given type.
Tensor embed(const Tensor &weight, const Tensor &ids, at::ScalarType type);
// Adds row i of g to the row of sum with the number ids[i].
void embed_gradient(const Tensor &g, const Tensor &ids, Tensor &sum);

} // namespace psyche::launches
