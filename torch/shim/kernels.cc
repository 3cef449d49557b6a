#include "kernels.h"

#include <cmath>

// Each loop is compiled for several instruction sets; the loader picks one.
#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__)
#define PT_WIDTHS __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define PT_WIDTHS
#endif

namespace psyche::kernels {

PT_WIDTHS
void rms_norm(const float *x, const float *weight, float *y, float *inverse, int64_t rows, int64_t n, float epsilon) {
  for (int64_t r = 0; r < rows; r++, x += n, y += n) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; i++) squares += x[i] * x[i];
    float inv = 1 / std::sqrt(squares / static_cast<float>(n) + epsilon);
    inverse[r] = inv;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = weight[i] * (x[i] * inv);
  }
}

PT_WIDTHS
void rms_norm_backward(const float *g, const float *x, const float *weight, const float *inverse, float *dx, float *dweight,
                       int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; r++, g += n, x += n, dx += n) {
    float inv = inverse[r], dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < n; i++) dot += g[i] * weight[i] * x[i];
    float along = dot * inv * inv * inv / static_cast<float>(n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
      dx[i] = g[i] * weight[i] * inv - x[i] * along;
      dweight[i] += g[i] * x[i] * inv;
    }
  }
}

PT_WIDTHS
void rotate(const float *x, const float *cos, const float *sin, float direction, float *y, int64_t rows, int64_t half) {
  for (int64_t r = 0; r < rows; r++, x += 2 * half, y += 2 * half) {
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
      float a = x[i], b = x[half + i], s = sin[i] * direction;
      y[i] = a * cos[i] - b * s;
      y[half + i] = b * cos[i] + a * s;
    }
  }
}

} // namespace psyche::kernels
