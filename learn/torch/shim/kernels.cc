#include "kernels.h"

#include <cmath>

namespace psyche::kernels {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PT_DISPATCH
namespace avx512 {
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2,prefer-vector-width=512")
#include "loops.h"
#pragma GCC pop_options
} // namespace avx512
namespace avx2 {
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2")
#include "loops.h"
#pragma GCC pop_options
} // namespace avx2
#endif
namespace baseline {
#include "loops.h"
} // namespace baseline

#ifdef PT_DISPATCH
enum class Level { baseline, avx2, avx512 };

static Level detect() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    return Level::avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return Level::avx2;
  return Level::baseline;
}

static const Level level = detect();

#define PT_CALL(loop, ...)                                \
  switch (level) {                                        \
  case Level::avx512: return avx512::loop(__VA_ARGS__);   \
  case Level::avx2: return avx2::loop(__VA_ARGS__);       \
  default: return baseline::loop(__VA_ARGS__);            \
  }
#else
#define PT_CALL(loop, ...) return baseline::loop(__VA_ARGS__);
#endif

#define PT_DEFINE(E) \
  void rms_norm(const E *x, const float *weight, E *y, float *inverse, int64_t rows, int64_t n, float epsilon) { \
    PT_CALL(rms_norm_rows, x, weight, y, inverse, rows, n, epsilon) \
  } \
  void rms_norm_backward(const E *g, const E *x, const float *weight, const float *inverse, const E *extra, E *dx, float *dweight, int64_t rows, int64_t n) { \
    PT_CALL(rms_norm_backward_rows, g, x, weight, inverse, extra, dx, dweight, rows, n) \
  } \
  void rotate(const E *x, const float *cos, const float *sin, float direction, E *y, int64_t rows, int64_t half) { \
    PT_CALL(rotate_rows, x, cos, sin, direction, y, rows, half) \
  } \
  void swiglu(const E *pairs, E *y, int64_t rows, int64_t n) { \
    PT_CALL(swiglu_rows, pairs, y, rows, n) \
  } \
  void swiglu_backward(E *pairs, E *g, int64_t rows, int64_t n) { \
    PT_CALL(swiglu_backward_rows, pairs, g, rows, n) \
  } \
  void softmax(E *x, int64_t rows, int64_t n, int64_t seen, int64_t groups, float scale) { \
    PT_CALL(softmax_rows, x, rows, n, seen, groups, scale) \
  } \
  void softmax_backward(const E *p, E *dp, int64_t rows, int64_t n, int64_t seen, int64_t groups, float scale) { \
    PT_CALL(softmax_backward_rows, p, dp, rows, n, seen, groups, scale) \
  } \
  float cross_entropy(E *logits, int64_t n, int64_t target, float share, float slope) { \
    PT_CALL(cross_entropy_row, logits, n, target, share, slope) \
  } \
  void accumulate(float *sum, const E *x, int64_t n) { \
    PT_CALL(accumulate_all, sum, x, n) \
  }

PT_DEFINE(float)
PT_DEFINE(bf16)

void adamw(float *p, const float *g, float *m, float *v, int64_t n, AdamW c) { PT_CALL(adamw_all, p, g, m, v, n, c) }
void narrow(const float *from, bf16 *to, int64_t n) { PT_CALL(narrow_all, from, to, n) }
void widen(const bf16 *from, float *to, int64_t n) { PT_CALL(widen_all, from, to, n) }

} // namespace psyche::kernels
