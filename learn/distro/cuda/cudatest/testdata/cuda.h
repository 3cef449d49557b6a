// CUDA's language for a C compiler: what the kernels use of it.

#ifndef PSYCHE_EMULATED_CUDA_H
#define PSYCHE_EMULATED_CUDA_H

#include "fibers.h"

#include <math.h>
#include <string.h>

#define KERNEL static void
#define INLINE static inline
#define NOINLINE static
#define UNROLL
#define UNROLL_FEW
#define UNROLL_BATCH
#define __shared__ static __attribute__((section(FIBER_SHARED)))
#define __constant__ static const
#define DYNAMIC_SHARED(type, name) type *name = (type *)fiber_dynamic

#define threadIdx (fiber_thread())
#define blockIdx (fiber_block())
#define gridDim (fiber_blocks())

// Points where threads meet. A site is a point in the source.
#define STRING(x) #x
#define LINE(x) STRING(x)
#define SITE (__FILE__ ":" LINE(__LINE__))
#define __syncthreads() fiber_barrier(SITE)
#define __ballot_sync(mask, predicate) fiber_ballot(SITE, mask, (predicate) != 0)
#define __shfl_sync(mask, value, lane) ((__typeof__(value))fiber_shuffle(SITE, mask, value, FIBER_INDEX, lane))
#define __shfl_up_sync(mask, value, step) ((__typeof__(value))fiber_shuffle(SITE, mask, value, FIBER_UP, step))
#define __shfl_xor_sync(mask, value, lanes) ((__typeof__(value))fiber_shuffle(SITE, mask, value, FIBER_XOR, lanes))

#define atomicAdd(at, value) fiber_atomic_add(at, value)
#define atomicMin(at, value) fiber_atomic_min(at, value)

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline float __double2float_rn(double a) { return (float)a; }
static inline unsigned __float_as_uint(float a) {
	unsigned b;
	memcpy(&b, &a, sizeof b);
	return b;
}
static inline double __longlong_as_double(long long a) {
	double b;
	memcpy(&b, &a, sizeof b);
	return b;
}
static inline int __ffs(int a) { return __builtin_ffs(a); }
static inline int __popc(unsigned a) { return __builtin_popcount(a); }

#endif
