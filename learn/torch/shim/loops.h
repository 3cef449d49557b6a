// The loops of kernels.cc. kernels.cc includes this file once for each instruction set, in a
// separate namespace and for a separate target. Hence there is no include guard.

template <class To, class From> static inline To bits(From v) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &v, sizeof to);
  return to;
}

static inline float get(float v) { return v; }
static inline float get(bf16 v) { return bits<float>(static_cast<uint32_t>(v.bits) << 16); }
static inline void put(float &to, float v) { to = v; }
static inline void put(bf16 &to, float v) {
  uint32_t u = bits<uint32_t>(v), rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  to.bits = static_cast<uint16_t>(v != v ? 0x7fc0 : rounded);
}

// e^x to two units in the last place, as in the Cephes library. x is clamped so that the result
// stays within the normal numbers.
static inline float exponential(float x) {
  constexpr float shift = 12582912; // 1.5 * 2^23: adding it rounds to an integer
  x = x < -87 ? -87 : x;
  x = x > 88 ? 88 : x;
  float z = x * 1.44269504f + shift, n = z - shift;
  float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1;
  return bits<float>(bits<uint32_t>(p) + (bits<uint32_t>(z) << 23));
}

template <class E>
static inline void rms_norm_rows(const E *x, const float *weight, E *y, float *inverse, int64_t rows, int64_t n, float epsilon) {
  for (int64_t r = 0; r < rows; r++, x += n, y += n) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; i++) squares += get(x[i]) * get(x[i]);
    float inv = 1 / std::sqrt(squares / static_cast<float>(n) + epsilon);
    inverse[r] = inv;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) put(y[i], weight[i] * (get(x[i]) * inv));
  }
}

template <class E>
static inline void rms_norm_backward_rows(const E *g, const E *x, const float *weight, const float *inverse, const E *extra, E *dx,
                                      float *dweight, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; r++, g += n, x += n, dx += n) {
    float inv = inverse[r], dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < n; i++) dot += get(g[i]) * weight[i] * get(x[i]);
    float along = dot * inv * inv * inv / static_cast<float>(n);
    if (extra) {
#pragma omp simd
      for (int64_t i = 0; i < n; i++) put(dx[i], get(extra[i]) + (get(g[i]) * weight[i] * inv - get(x[i]) * along));
      extra += n;
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; i++) put(dx[i], get(g[i]) * weight[i] * inv - get(x[i]) * along);
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dweight[i] += get(g[i]) * get(x[i]) * inv;
  }
}

template <class E>
static inline void rotate_rows(const E *x, const float *cos, const float *sin, float direction, E *y, int64_t rows, int64_t half) {
  for (int64_t r = 0; r < rows; r++, x += 2 * half, y += 2 * half) {
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
      float a = get(x[i]), b = get(x[half + i]), s = sin[i] * direction;
      put(y[i], a * cos[i] - b * s);
      put(y[half + i], b * cos[i] + a * s);
    }
  }
}

template <class E> static inline void swiglu_rows(const E *pairs, E *y, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; r++, pairs += 2 * n, y += n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
      float gate = get(pairs[i]);
      put(y[i], gate / (1 + exponential(-gate)) * get(pairs[n + i]));
    }
  }
}

template <class E> static inline void swiglu_backward_rows(E *pairs, E *g, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; r++, pairs += 2 * n, g += n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
      float gate = get(pairs[i]), up = get(pairs[n + i]), d = get(g[i]);
      float sigmoid = 1 / (1 + exponential(-gate)), silu = gate * sigmoid;
      put(pairs[i], d * up * (sigmoid + silu * (1 - sigmoid)));
      put(pairs[n + i], d * silu);
      put(g[i], silu * up);
    }
  }
}

template <class E> static inline float largest(const E *x, int64_t n) {
  float most = get(x[0]);
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; i++) most = get(x[i]) > most ? get(x[i]) : most;
  return most;
}

template <class E>
static inline void softmax_rows(E *x, int64_t rows, int64_t n, int64_t seen, int64_t groups, float scale) {
  for (int64_t r = 0; r < rows; r++, x += n) {
    int64_t count = seen + r / groups;
    float most = largest(x, count) * scale, total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < count; i++) {
      float e = exponential(get(x[i]) * scale - most);
      put(x[i], e);
      total += e;
    }
    float share = 1 / total;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) put(x[i], get(x[i]) * share);
    for (int64_t i = count; i < n; i++) put(x[i], 0);
  }
}

template <class E>
static inline void softmax_backward_rows(const E *p, E *dp, int64_t rows, int64_t n, int64_t seen, int64_t groups, float scale) {
  for (int64_t r = 0; r < rows; r++, p += n, dp += n) {
    int64_t count = seen + r / groups;
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < count; i++) dot += get(p[i]) * get(dp[i]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) put(dp[i], scale * get(p[i]) * (get(dp[i]) - dot));
    for (int64_t i = count; i < n; i++) put(dp[i], 0);
  }
}

template <class E> static inline float cross_entropy_row(E *logits, int64_t n, int64_t target, float share, float slope) {
  float most = largest(logits, n), total = 0, wanted = get(logits[target]);
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; i++) total += exponential(get(logits[i]) - most);
  float lse = most + std::log(total);
  if (slope != 0) {
    float factor = share * slope;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) put(logits[i], exponential(get(logits[i]) - lse) * factor);
    put(logits[target], (exponential(wanted - lse) - 1) * factor);
  }
  return (lse - wanted) * share;
}

template <class E> static inline void accumulate_all(float *sum, const E *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) sum[i] += get(x[i]);
}

static inline void adamw_all(float *p, const float *g, float *m, float *v, int64_t n, AdamW c) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    m[i] = m[i] * c.beta1 + g[i] * c.rest1;
    v[i] = v[i] * c.beta2 + g[i] * g[i] * c.rest2;
    p[i] = p[i] * c.keep - c.rate * (m[i] / (std::sqrt(v[i]) / c.root + c.epsilon));
  }
}

template <class E> static inline void narrow_all(const float *from, E *to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) put(to[i], from[i]);
}

template <class E> static inline void widen_all(const E *from, float *to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) to[i] = get(from[i]);
}
