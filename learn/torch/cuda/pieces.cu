// The parts of a transformer layer that libtorch has no single kernel for. pieces.h declares the
// arguments. They compute what shim/loops.h computes on the CPU, and round at the same points; only
// the order of sums differs. Sums do not depend on the number of blocks that run at once, so equal
// devices compute equal bits.
//
// NVRTC compiles this text for a GPU, after pieces.h. For tests, the strict device compiles it for
// the CPU and runs each thread of a block as a fiber.

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ __launch_bounds__(PIECES_THREADS) void
#define INLINE static __device__ __forceinline__
#endif

#define WARP 32
#define WARPS (PIECES_THREADS / WARP)
#define EVERY_LANE 0xffffffffu

struct bf16 {
  unsigned short bits;
};

struct alignas(16) four_f32 {
  float at[4];
};

struct alignas(8) four_bf16 {
  bf16 at[4];
};

INLINE float get(float v) { return v; }
INLINE float get(bf16 v) { return __uint_as_float((unsigned)v.bits << 16); }
INLINE void put(float &to, float v) { to = v; }
INLINE void put(bf16 &to, float v) {
  unsigned u = __float_as_uint(v);
  to.bits = (unsigned short)(v != v ? 0x7fc0u : (u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

// Four adjacent elements.
struct quad {
  float at[4];
};

INLINE quad load(const float *from) {
  four_f32 raw = *(const four_f32 *)from;
  return quad{{raw.at[0], raw.at[1], raw.at[2], raw.at[3]}};
}

INLINE quad load(const bf16 *from) {
  four_bf16 raw = *(const four_bf16 *)from;
  return quad{{get(raw.at[0]), get(raw.at[1]), get(raw.at[2]), get(raw.at[3])}};
}

INLINE void store(float *to, quad v) { *(four_f32 *)to = four_f32{{v.at[0], v.at[1], v.at[2], v.at[3]}}; }

INLINE void store(bf16 *to, quad v) {
  four_bf16 raw;
  for (int j = 0; j < 4; j++) put(raw.at[j], v.at[j]);
  *(four_bf16 *)to = raw;
}

// e^x to two units in the last place; see exponential in shim/loops.h.
INLINE float exponential(float x) {
  const float shift = 12582912;
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
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(z) << 23));
}

// Returns the value of lane (own number XOR offset) of the warp.
INLINE float across(float v, int offset) { return __uint_as_float(__shfl_xor_sync(EVERY_LANE, __float_as_uint(v), offset)); }

// Returns the sum over all threads of the block to each of them. All threads must call it.
INLINE float block_sum(float v) {
  __shared__ float parts[WARPS];
  for (int offset = WARP / 2; offset > 0; offset /= 2) v += across(v, offset);
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = v;
  __syncthreads();
  v = 0;
  for (int i = 0; i < WARPS; i++) v += parts[i];
  __syncthreads();
  return v;
}

// Like block_sum, for the largest value.
INLINE float block_largest(float v) {
  __shared__ float parts[WARPS];
  for (int offset = WARP / 2; offset > 0; offset /= 2) {
    float other = across(v, offset);
    v = other > v ? other : v;
  }
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = v;
  __syncthreads();
  for (int i = 0; i < WARPS; i++) v = parts[i] > v ? parts[i] : v;
  __syncthreads();
  return v;
}

// ---- RMSNorm ----

template <class E> INLINE void norm_forward(const pieces_norm &a) {
  long long row = blockIdx.x;
  const E *x = (const E *)a.x + row * a.n;
  E *y = (E *)a.y + row * a.n;
  float squares = 0;
  for (long long i = 4 * threadIdx.x; i < a.n; i += 4 * PIECES_THREADS) {
    quad v = load(x + i);
    for (int j = 0; j < 4; j++) squares += v.at[j] * v.at[j];
  }
  float inverse = 1 / sqrtf(block_sum(squares) / (float)a.n + a.epsilon);
  if (threadIdx.x == 0) a.inverse[row] = inverse;
  for (long long i = 4 * threadIdx.x; i < a.n; i += 4 * PIECES_THREADS) {
    quad v = load(x + i), w = load(a.weight + i);
    for (int j = 0; j < 4; j++) v.at[j] = w.at[j] * (v.at[j] * inverse);
    store(y + i, v);
  }
}

template <class E> INLINE void norm_backward(const pieces_norm_backward &a) {
  long long first = a.rows * blockIdx.x / gridDim.x, last = a.rows * (blockIdx.x + 1LL) / gridDim.x;
  float *sums = a.partial + (long long)blockIdx.x * a.n;
  for (long long row = first; row < last; row++) {
    const E *g = (const E *)a.g + row * a.n, *x = (const E *)a.x + row * a.n;
    const E *extra = a.extra ? (const E *)a.extra + row * a.n : nullptr;
    E *dx = (E *)a.dx + row * a.n;
    float inverse = a.inverse[row], dot = 0;
    for (long long i = 4 * threadIdx.x; i < a.n; i += 4 * PIECES_THREADS) {
      quad gi = load(g + i), xi = load(x + i), w = load(a.weight + i);
      for (int j = 0; j < 4; j++) dot += gi.at[j] * w.at[j] * xi.at[j];
    }
    float along = block_sum(dot) * inverse * inverse * inverse / (float)a.n;
    for (long long i = 4 * threadIdx.x; i < a.n; i += 4 * PIECES_THREADS) {
      quad gi = load(g + i), xi = load(x + i), w = load(a.weight + i), d, s = {};
      if (extra) s = load(extra + i);
      for (int j = 0; j < 4; j++) d.at[j] = s.at[j] + (gi.at[j] * w.at[j] * inverse - xi.at[j] * along);
      store(dx + i, d);
      quad sum = {};
      if (row > first) sum = load(sums + i);
      for (int j = 0; j < 4; j++) sum.at[j] += gi.at[j] * xi.at[j] * inverse;
      store(sums + i, sum);
    }
  }
}

KERNEL psyche_sum_parts(pieces_sum_parts a) {
  __shared__ float sums[PIECES_THREADS];
  int column = threadIdx.x % PIECES_COLUMNS, group = threadIdx.x / PIECES_COLUMNS;
  const int groups = PIECES_THREADS / PIECES_COLUMNS;
  long long i = (long long)blockIdx.x * PIECES_COLUMNS + column;
  float sum = 0;
  if (i < a.n) {
    for (long long part = group; part < a.parts; part += groups) sum += a.partial[part * a.n + i];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (group != 0 || i >= a.n) return;
  for (int other = 1; other < groups; other++) sum += sums[other * PIECES_COLUMNS + column];
  a.sum[i] = a.add ? a.sum[i] + sum : sum;
}

// ---- rotary positions ----

template <class E> INLINE void rotate(const pieces_rotate &a) {
  long long b = blockIdx.x / a.T, t = blockIdx.x % a.T;
  int quads = a.half / 4;
  for (int part = 0; part < a.count; part++) {
    const pieces_heads &p = a.list[part];
    const E *x = (const E *)p.x + b * p.xb + t * p.xt;
    E *y = (E *)p.y + b * p.yb + t * p.yt;
    for (int q = threadIdx.x; q < p.heads * quads; q += PIECES_THREADS) {
      long long h = q / quads, i = q % quads * 4;
      quad low = load(x + h * p.xh + i), high = load(x + h * p.xh + a.half + i), first = low, second = high;
      if (p.turns) {
        quad c = load(a.cos + t * a.half + i), s = load(a.sin + t * a.half + i);
        for (int j = 0; j < 4; j++) {
          float sine = s.at[j] * a.direction;
          first.at[j] = low.at[j] * c.at[j] - high.at[j] * sine;
          second.at[j] = high.at[j] * c.at[j] + low.at[j] * sine;
        }
      }
      store(y + h * p.yh + i, first);
      store(y + h * p.yh + a.half + i, second);
    }
  }
}

// ---- SwiGLU ----

template <class E> INLINE void swiglu(const pieces_swiglu &a) {
  long long at = 4 * ((long long)blockIdx.x * PIECES_THREADS + threadIdx.x);
  if (at >= a.rows * a.n) return;
  const E *pairs = (const E *)a.pairs + at / a.n * 2 * a.n + at % a.n;
  quad gate = load(pairs), up = load(pairs + a.n);
  for (int j = 0; j < 4; j++) gate.at[j] = gate.at[j] / (1 + exponential(-gate.at[j])) * up.at[j];
  store((E *)a.y + at, gate);
}

template <class E> INLINE void swiglu_backward(const pieces_swiglu &a) {
  long long at = 4 * ((long long)blockIdx.x * PIECES_THREADS + threadIdx.x);
  if (at >= a.rows * a.n) return;
  E *pairs = (E *)a.pairs + at / a.n * 2 * a.n + at % a.n, *g = (E *)a.y + at;
  quad gate = load(pairs), up = load(pairs + a.n), d = load(g), y;
  for (int j = 0; j < 4; j++) {
    float sigmoid = 1 / (1 + exponential(-gate.at[j])), silu = gate.at[j] * sigmoid, slope = d.at[j], factor = up.at[j];
    gate.at[j] = slope * factor * (sigmoid + silu * (1 - sigmoid));
    up.at[j] = slope * silu;
    y.at[j] = silu * factor;
  }
  store(pairs, gate);
  store(pairs + a.n, up);
  store(g, y);
}

// ---- cross-entropy ----

KERNEL psyche_count(pieces_count a) {
  float own = 0; // exact up to 2^24 targets
  for (long long i = threadIdx.x; i < a.n; i += PIECES_THREADS) own += a.targets[i] != a.ignore;
  float all = block_sum(own);
  if (threadIdx.x == 0) *a.count = all < 1 ? 1 : all;
}

// A target outside of the row makes the loss NaN.
template <class E> INLINE void cross_entropy(const pieces_cross_entropy &a) {
  E *row = (E *)a.logits + (long long)blockIdx.x * a.n;
  long long target = a.targets[blockIdx.x];
  if (target == a.ignore) {
    if (threadIdx.x == 0) a.losses[blockIdx.x] = 0;
    if (a.slope == 0) return;
    for (long long i = threadIdx.x; i < a.n; i += PIECES_THREADS) put(row[i], 0);
    return;
  }
  float most = get(row[0]), total = 0;
  for (long long i = threadIdx.x; i < a.n; i += PIECES_THREADS) most = get(row[i]) > most ? get(row[i]) : most;
  most = block_largest(most);
  for (long long i = threadIdx.x; i < a.n; i += PIECES_THREADS) total += exponential(get(row[i]) - most);
  float lse = most + logf(block_sum(total)), share = 1 / *a.count;
  bool known = target >= 0 && target < a.n;
  if (threadIdx.x == 0) a.losses[blockIdx.x] = known ? (lse - get(row[target])) * share : __uint_as_float(0x7fc00000u);
  if (a.slope == 0) return;
  __syncthreads(); // the row is overwritten below
  float factor = share * a.slope;
  for (long long i = threadIdx.x; i < a.n; i += PIECES_THREADS) {
    put(row[i], (exponential(get(row[i]) - lse) - (i == target ? 1 : 0)) * factor);
  }
}

// ---- embedding ----

// An id outside of the table makes the row NaN.
template <class E> INLINE void embed(const pieces_embed &a) {
  long long id = a.ids[blockIdx.x];
  E *y = (E *)a.y + (long long)blockIdx.x * a.n;
  bool known = id >= 0 && id < a.rows;
  float nan = __uint_as_float(0x7fc00000u);
  for (long long i = 4 * threadIdx.x; i < a.n; i += 4 * PIECES_THREADS) {
    quad v = {{nan, nan, nan, nan}};
    if (known) v = load(a.weight + id * a.n + i);
    store(y + i, v);
  }
}

// Returns one flag for each thread of the block. Shared memory cannot be declared in a template: compilers
// for CPUs then ignore the section that the tests give it.
INLINE int *shared_flags() {
  __shared__ int flags[PIECES_THREADS];
  return flags;
}

// The block of the first token with an id adds the rows of all tokens with it. The blocks of the
// other tokens have nothing to do.
template <class E> INLINE void embed_gradient(const pieces_embed_gradient &a) {
  int *same = shared_flags();
  long long own = blockIdx.x, id = a.ids[own];
  if (id < 0 || id >= a.rows) return;
  float before = 0;
  for (long long i = threadIdx.x; i < own; i += PIECES_THREADS) before += a.ids[i] == id;
  if (block_sum(before) > 0) return;
  for (long long first = own; first < a.tokens; first += PIECES_THREADS) {
    long long token = first + threadIdx.x;
    same[threadIdx.x] = token < a.tokens && a.ids[token] == id;
    __syncthreads();
    for (int other = 0; other < PIECES_THREADS; other++) {
      if (!same[other]) continue;
      const E *g = (const E *)a.g + (first + other) * a.n;
      for (long long i = 4 * threadIdx.x; i < a.n; i += 4 * PIECES_THREADS) {
        quad sum = load(a.sum + id * a.n + i), v = load(g + i);
        for (int j = 0; j < 4; j++) sum.at[j] += v.at[j];
        store(a.sum + id * a.n + i, sum);
      }
    }
    __syncthreads();
  }
}

#define PIECES(name, arguments)                                          \
  KERNEL psyche_##name##_f32(arguments a) { name<float>(a); }            \
  KERNEL psyche_##name##_bf16(arguments a) { name<bf16>(a); }

PIECES(norm_forward, pieces_norm)
PIECES(norm_backward, pieces_norm_backward)
PIECES(rotate, pieces_rotate)
PIECES(swiglu, pieces_swiglu)
PIECES(swiglu_backward, pieces_swiglu)
PIECES(cross_entropy, pieces_cross_entropy)
PIECES(embed, pieces_embed)
PIECES(embed_gradient, pieces_embed_gradient)
