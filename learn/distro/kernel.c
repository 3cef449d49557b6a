//go:build cgo && amd64

// One build contains the kernels for every instruction set. The program selects one at run time.

// A fused multiply-add rounds once where the definition rounds twice. cgo does not let a package
// pass -ffp-contract=off, so the source sets it, in the form for each compiler.
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "kernel.h"

#include <immintrin.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error "the kernels must not be compiled with -ffast-math: replicas would differ"
#endif

#define PADDING 16
#define MAX_CHUNK 128
#define MAXIMA 128 // see select_few
#define FEW 32     // up to this number of coefficients, insertion selects

static inline int padded(int n) { return (n + PADDING - 1) & ~(PADDING - 1); }

static inline uint32_t magnitude(float v) {
	uint32_t b;
	memcpy(&b, &v, sizeof b);
	return b & 0x7fffffff;
}

#define LEAST 0x0d800000 // bits of 2⁻¹⁰⁰

// flush returns zero for a value that is too small for a momentum: see reference.go.
static inline float flush(float x) { return magnitude(x) < LEAST ? 0.0f : x; }

// The scratch memory for a chunk. Rows of chunk and rows hold padded(cols) floats; rows of turned
// hold padded(rows).
typedef struct {
	float *chunk, *rows, *turned;
} scratch;

// ahead is the part of the next chunk still to prefetch while the current chunk is computed. It is
// prefetched in pieces, because requests for all its cache lines at once would wait for each other.
typedef struct {
	const float *delta, *grad;
	int64_t stride;
	int rows, cols;
} ahead;

// fetch prefetches a quarter as many rows as a strip has lanes. With one call for each strip, this
// covers all rows of a square chunk during its three transforms and its transposition.
static inline void fetch(ahead *next, int lanes) {
	for (int n = lanes / 4; n > 0 && next->rows > 0; n--, next->rows--, next->delta += next->stride, next->grad += next->stride)
		for (int j = 0; j < next->cols; j += PADDING) {
			__builtin_prefetch(next->delta + j, 1);
			__builtin_prefetch(next->grad + j, 0);
		}
}

static int64_t plane(int rows, int cols) { return (int64_t)padded(rows) * padded(cols); }

int64_t psyche_distro_scratch(int rows, int cols) { return 3 * plane(rows, cols); }

static scratch carve(const psyche_distro_plan *p) {
	int64_t size = plane(p->column.n, p->row.n);
	scratch s;
	s.chunk = p->scratch;
	s.rows = s.chunk + size;
	s.turned = s.rows + size;
	return s;
}

// below_floor reports whether no value has a magnitude of at least floor. If so, it clears the
// entries of the selected coefficients.
static int below_floor(int count, uint16_t *indices, float *values, float floor) {
	for (int i = 0; i < count; i++)
		if (magnitude(values[i]) >= magnitude(floor))
			return 0;
	memset(indices, 0, count * sizeof *indices);
	memset(values, 0, count * sizeof *values);
	return 1;
}

// insert adds a key to the list of the count ≤ k largest keys, in descending order. It returns the
// new length of the list.
static inline int insert(uint64_t *keys, int count, int k, uint64_t key) {
	int at = count;
	if (count == k) {
		if (key <= keys[k - 1])
			return count;
		at = k - 1;
	} else {
		count++;
	}
	for (; at > 0 && keys[at - 1] < key; at--)
		keys[at] = keys[at - 1];
	keys[at] = key;
	return count;
}

#define INLINE static inline __attribute__((always_inline)) TARGET

#define LANES 4
#define NAME(x) x##_baseline
#define TARGET
#include "kernel_vector.h"
#undef LANES
#undef NAME
#undef TARGET

#define LANES 8
#define NAME(x) x##_avx2
#define TARGET __attribute__((target("avx2")))
#include "kernel_vector.h"
#undef LANES
#undef NAME
#undef TARGET

#define LANES 16
#define NAME(x) x##_avx512
#define TARGET __attribute__((target("avx512f")))
#include "kernel_vector.h"
#undef LANES
#undef NAME
#undef TARGET

unsigned psyche_distro_isas(void) {
	unsigned set = 1u << PSYCHE_DISTRO_BASELINE;
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2"))
		set |= 1u << PSYCHE_DISTRO_AVX2;
	if (__builtin_cpu_supports("avx512f"))
		set |= 1u << PSYCHE_DISTRO_AVX512;
	return set;
}

// Any library in the process may have set the threads to flush subnormal numbers to zero or to
// another rounding. The kernels run in the default mode of IEEE 754 and restore the previous mode.
#define DEFAULT_MODE 0x1f80

#define DISPATCH(call)                        \
	unsigned mode = _mm_getcsr();             \
	_mm_setcsr(DEFAULT_MODE);                 \
	switch (isa) {                            \
	case PSYCHE_DISTRO_AVX512:                \
		call(avx512);                         \
		break;                                \
	case PSYCHE_DISTRO_AVX2:                  \
		call(avx2);                           \
		break;                                \
	default:                                  \
		call(baseline);                       \
	}                                         \
	_mm_setcsr(mode)

int64_t psyche_distro_encode(int isa, psyche_distro_plan plan, int64_t first, int64_t last,
	const float *delta, float *left, const float *grad, float decay, float lr, float floor,
	int k, uint16_t *counts, uint16_t *indices, float *values) {
	int64_t bad;
#define CALL(set) bad = encode_##set(&plan, first, last, delta, left, grad, decay, lr, floor, k, counts, indices, values)
	DISPATCH(CALL);
#undef CALL
	return bad;
}

void psyche_distro_apply(int isa, psyche_distro_plan plan, int64_t first, int64_t last,
	const int32_t *offsets, const uint16_t *indices, const float *values,
	float *weights, const float *rates, float factor) {
#define CALL(set) apply_##set(&plan, first, last, offsets, indices, values, weights, rates, factor)
	DISPATCH(CALL);
#undef CALL
}

double psyche_distro_squares(int isa, const float *v, int64_t n) {
	double sum;
#define CALL(set) sum = squares_##set(v, n)
	DISPATCH(CALL);
#undef CALL
	return sum;
}

void psyche_distro_add(int isa, psyche_distro_plan plan, int64_t first, int64_t last,
	const int32_t *offsets, const uint16_t *indices, const float *values, float *delta) {
#define CALL(set) add_##set(&plan, first, last, offsets, indices, values, delta)
	DISPATCH(CALL);
#undef CALL
}
