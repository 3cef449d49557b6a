// Loops over memory on the CPU. Each makes one pass where a composition of tensor operations makes
// several. Sums are in f32 for any element type. Results do not depend on the number of threads.
#pragma once

#include <cstdint>

namespace psyche::kernels {

// The upper half of an f32.
struct bf16 {
  uint16_t bits;
};


#define PT_KERNELS(E)                                                                                                  \
  /* y = weight * x * inverse, inverse = 1/sqrt(mean(x^2) + epsilon), per row of x [rows,n]. */                        \
  void rms_norm(const E *x, const float *weight, E *y, float *inverse, int64_t rows, int64_t n, float epsilon);        \
  /* dx = the gradient for x, plus extra unless null; adds the gradient for weight to dweight [n]. */                  \
  void rms_norm_backward(const E *g, const E *x, const float *weight, const float *inverse, const E *extra, E *dx,     \
                         float *dweight, int64_t rows, int64_t n);                                                     \
  /* Rotates the pairs (i, i+half) of rows of 2*half elements by the angle with cosine and sine at [i];                \
     direction is 1, or -1 for the inverse. */                                                                         \
  void rotate(const E *x, const float *cos, const float *sin, float direction, E *y, int64_t rows, int64_t half);      \
  /* silu(gate) * up for rows [gate | up] of 2*n elements. */                                                          \
  void swiglu(const E *pairs, E *y, int64_t rows, int64_t n);                                                          \
  /* Replaces pairs by their gradients and g by the forward result. */                                                 \
  void swiglu_backward(E *pairs, E *g, int64_t rows, int64_t n);                                                       \
  /* Row r of [rows,n] becomes softmax(scale*row) over its first seen+r/groups elements, 0 after. */                   \
  void softmax(E *rows_, int64_t rows, int64_t n, int64_t seen, int64_t groups, float scale);                          \
  /* dp = scale * p * (dp - sum(p*dp)), over the same elements, 0 after. */                                            \
  void softmax_backward(const E *p, E *dp, int64_t rows, int64_t n, int64_t seen, int64_t groups, float scale);        \
  /* Cross-entropy of one row of n logits times share. Unless slope is 0, the row becomes slope times the gradient. */ \
  float cross_entropy(E *logits, int64_t n, int64_t target, float share, float slope);                                 \
  /* sum += x */                                                                                                       \
  void accumulate(float *sum, const E *x, int64_t n);

PT_KERNELS(float)
PT_KERNELS(bf16)

// The constants of one step of AdamW: rest is 1 - beta, root
// sqrt(1 - beta2^step), keep 1 - rate*decay, and rate is divided by 1 - beta1^step.
struct AdamW {
  float beta1, rest1, beta2, rest2, root, epsilon, rate, keep;
};
void adamw(float *p, const float *g, float *m, float *v, int64_t n, AdamW c);

// Rounds to nearest, ties to even; and back.
void narrow(const float *from, bf16 *to, int64_t n);
void widen(const bf16 *from, float *to, int64_t n);

} // namespace psyche::kernels
