// Loops over f32 memory on the CPU, each one pass where a composition of tensor
// operations takes several. Results do not depend on the number of threads.
#pragma once

#include <cstdint>

namespace psyche::kernels {

// y = weight * x * inverse, inverse = 1/sqrt(mean(x^2) + epsilon), per row of x [rows,n].
void rms_norm(const float *x, const float *weight, float *y, float *inverse, int64_t rows, int64_t n, float epsilon);

// Gradients of rms_norm by x, and added to dweight [n] that of weight.
void rms_norm_backward(const float *g, const float *x, const float *weight, const float *inverse, float *dx, float *dweight,
                       int64_t rows, int64_t n);

// Rotates the pairs (i, i+half) of rows of 2*half elements by the angle whose cosines and
// sines are at [i]; direction is 1, or -1 for the inverse.
void rotate(const float *x, const float *cos, const float *sin, float direction, float *y, int64_t rows, int64_t half);

} // namespace psyche::kernels
