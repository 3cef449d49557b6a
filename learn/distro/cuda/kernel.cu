// The kernels of package distro for a GPU. They compute the same bits as the kernels for CPUs: the
// order of the single-precision operations is the order in learn/distro/reference.go, transform.go
// and merge.go. Every operation is one of CUDA's intrinsics that round once and are never
// contracted.
//
// This file has the parts that all kernels share. The other files follow it in one source, in the
// order of sources in arguments.go. The text is also plain C for a CPU: cudatest/testdata/cuda.h
// defines the macros below and CUDA's functions.

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ __launch_bounds__(64) void
#define INLINE static __device__ __forceinline__
#define NOINLINE static __device__ __noinline__
#define UNROLL _Pragma("unroll")
#define UNROLL_FEW _Pragma("unroll 4")
#define UNROLL_BATCH _Pragma("unroll 16") // BATCH
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

#define THREADS 64 // of a block
#define WARPS (THREADS / 32)
#define ALL_LANES 0xffffffffu
#define BATCH 16 // reads of the device's memory that a thread starts before it uses the first
#define MAX_CHUNK 128
#define LARGEST 0x7f7fffffu // bits of the largest finite number

// arguments.go fills in the structs. They have the same layout in Go.

// One direction of a chunk's transform.
typedef struct {
	int n, lee;         // points; whether n is a power of two (Lee's recursion)
	float mean, scale;  // factors of coefficient 0 and of the others
	const float *basis; // n rows, ld floats apart
	long long ld;
} axis;

typedef struct {
	axis column, row;
	const float *secants;
	long long stride, blocks, chunks; // elements to the next row; chunks in a row of chunks; number of chunks
} plan;

// The tensors of a model, and the work items of a kernel, such as chunks. The items of tensor t are
// firsts[t] to firsts[t + 1]. For a part of a model, firsts[0] is not zero.
typedef struct {
	const plan *plans;
	const long long *firsts;
	long long tensors;
} model;

typedef char plan_is_96_bytes[sizeof(plan) == 96 ? 1 : -1];

// tensor_of returns the tensor of an item.
INLINE long long tensor_of(const model *m, long long item) {
	long long low = 0, high = m->tensors;
	while (high - low > 1) {
		const long long middle = (low + high) / 2;
		if (m->firsts[middle] <= item)
			low = middle;
		else
			high = middle;
	}
	return low;
}

// place returns the position of a chunk's first element in its tensor.
INLINE long long place(const plan *p, long long chunk) {
	return chunk / p->blocks * p->column.n * p->stride + chunk % p->blocks * p->row.n;
}

// Lee's recursion on the N values of x with scratch t: leeForward and leeInverse of
// transform.go. SUB is the name of the function for N/2 values. The functions forward_held and
// inverse_held transform a line in memory, and multiply its coefficients by mean and scale.
INLINE void forward_1(float *x, float *t, const float *secants) { (void)x, (void)t, (void)secants; }
INLINE void inverse_1(float *x, float *t, const float *secants) { (void)x, (void)t, (void)secants; }

#define LEE(N, H, SUB) \
	INLINE void forward_##N(float *x, float *t, const float *secants) { \
		UNROLL for (int i = 0; i < H; i++) { \
			float a = x[i], b = x[N - 1 - i]; \
			t[i] = __fadd_rn(a, b); \
			t[H + i] = __fmul_rn(__fsub_rn(a, b), secants[H + i]); \
		} \
		forward_##SUB(t, x, secants); \
		forward_##SUB(t + H, x + H, secants); \
		UNROLL for (int i = 0; i < H - 1; i++) { \
			x[2 * i] = t[i]; \
			x[2 * i + 1] = __fadd_rn(t[H + i], t[H + i + 1]); \
		} \
		x[N - 2] = t[H - 1]; \
		x[N - 1] = t[N - 1]; \
	} \
	INLINE void inverse_##N(float *x, float *t, const float *secants) { \
		t[0] = x[0]; \
		t[H] = x[1]; \
		UNROLL for (int i = 1; i < H; i++) { \
			t[i] = x[2 * i]; \
			t[H + i] = __fadd_rn(x[2 * i - 1], x[2 * i + 1]); \
		} \
		inverse_##SUB(t, x, secants); \
		inverse_##SUB(t + H, x + H, secants); \
		UNROLL for (int i = 0; i < H; i++) { \
			float a = t[i], b = __fmul_rn(t[H + i], secants[H + i]); \
			x[i] = __fadd_rn(a, b); \
			x[N - 1 - i] = __fsub_rn(a, b); \
		} \
	} \
	NOINLINE void forward_held_##N(float *line, int step, const float *secants, float mean, float scale) { \
		float x[N], t[N]; \
		UNROLL for (int i = 0; i < N; i++) x[i] = line[i * step]; \
		forward_##N(x, t, secants); \
		UNROLL for (int i = 0; i < N; i++) line[i * step] = __fmul_rn(x[i], i == 0 ? mean : scale); \
	} \
	NOINLINE void inverse_held_##N(float *line, int step, const float *secants, float mean, float scale) { \
		float x[N], t[N]; \
		UNROLL for (int i = 0; i < N; i++) x[i] = __fmul_rn(line[i * step], i == 0 ? mean : scale); \
		inverse_##N(x, t, secants); \
		UNROLL for (int i = 0; i < N; i++) line[i * step] = x[i]; \
	}

LEE(2, 1, 1)
LEE(4, 2, 2)
LEE(8, 4, 4)
LEE(16, 8, 8)
LEE(32, 16, 16)

// Longer lines stay in memory between the steps of Lee's recursion, because they would take all registers. HALVES
// defines the functions for N points. They call the functions for H = N/2 points for both halves of a line. In the
// order below, no write replaces a value that a later step reads.
#define HALVES(N, H) \
	NOINLINE void forward_held_##N(float *line, int step, const float *secants, float mean, float scale) { \
		UNROLL_FEW for (int i = 0; i < H / 2; i++) { \
			float *p = line + i * step, *q = line + (H - 1 - i) * step, *r = line + (H + i) * step, *s = line + (N - 1 - i) * step; \
			const float a = *p, b = *q, c = *r, d = *s; \
			*p = __fadd_rn(a, d); \
			*q = __fadd_rn(b, c); \
			*r = __fmul_rn(__fsub_rn(a, d), secants[H + i]); \
			*s = __fmul_rn(__fsub_rn(b, c), secants[N - 1 - i]); \
		} \
		forward_held_##H(line, step, secants, 1, 1); \
		forward_held_##H(line + H * step, step, secants, 1, 1); \
		float even[H], odd = line[H * step]; \
		UNROLL for (int i = 0; i < H; i++) { \
			if (i < H / 2) { \
				even[2 * i] = line[2 * i * step]; \
				even[2 * i + 1] = line[(2 * i + 1) * step]; \
			} \
			const float next = i < H - 1 ? line[(H + i + 1) * step] : 0; \
			line[2 * i * step] = __fmul_rn(even[i], i == 0 ? mean : scale); \
			line[(2 * i + 1) * step] = __fmul_rn(i < H - 1 ? __fadd_rn(odd, next) : odd, scale); \
			odd = next; \
		} \
	} \
	NOINLINE void inverse_held_##N(float *line, int step, const float *secants, float mean, float scale) { \
		float even[H], odd = __fmul_rn(line[(N - 1) * step], scale); \
		UNROLL for (int i = H - 1; i >= 0; i--) { \
			const float next = i > 0 ? __fmul_rn(line[(2 * i - 1) * step], scale) : 0; \
			even[i] = __fmul_rn(line[2 * i * step], i == 0 ? mean : scale); \
			line[(H + i) * step] = i > 0 ? __fadd_rn(next, odd) : odd; \
			odd = next; \
			if (i < H / 2) { \
				line[2 * i * step] = even[2 * i]; \
				line[(2 * i + 1) * step] = even[2 * i + 1]; \
			} \
		} \
		inverse_held_##H(line, step, secants, 1, 1); \
		inverse_held_##H(line + H * step, step, secants, 1, 1); \
		UNROLL_FEW for (int i = 0; i < H / 2; i++) { \
			float *p = line + i * step, *q = line + (H - 1 - i) * step, *r = line + (H + i) * step, *s = line + (N - 1 - i) * step; \
			const float a = *p, b = *q, c = __fmul_rn(*r, secants[H + i]), d = __fmul_rn(*s, secants[N - 1 - i]); \
			*p = __fadd_rn(a, c); \
			*q = __fadd_rn(b, d); \
			*r = __fsub_rn(b, d); \
			*s = __fsub_rn(a, c); \
		} \
	}

HALVES(64, 32)
HALVES(128, 64)

// dense multiplies a line by the matrix with element (k, i) at matrix[k·down + i·right], adding in
// ascending order of i.
NOINLINE void dense(int n, const float *matrix, long long down, long long right, float *line, int step) {
	float sums[MAX_CHUNK];
	for (int k = 0; k < n; k++) {
		float sum = 0;
		for (int i = 0; i < n; i++)
			sum = __fadd_rn(sum, __fmul_rn(matrix[k * down + i * right], line[i * step]));
		sums[k] = sum;
	}
	for (int k = 0; k < n; k++)
		line[k * step] = sums[k];
}

#define EACH_POWER(CASE) CASE(2) CASE(4) CASE(8) CASE(16) CASE(32) CASE(64) CASE(128)

// forward replaces the values of a line, step floats apart, by their DCT.
NOINLINE void forward(const axis *a, const float *secants, float *line, int step) {
	if (!a->lee) {
		dense(a->n, a->basis, a->ld, 1, line, step);
		return;
	}
	switch (a->n) {
	case 1:
		line[0] = __fmul_rn(line[0], a->mean);
		break;
#define CASE(N) \
	case N: \
		forward_held_##N(line, step, secants, a->mean, a->scale); \
		break;
		EACH_POWER(CASE)
#undef CASE
	}
}

// inverse is the inverse of forward.
NOINLINE void inverse(const axis *a, const float *secants, float *line, int step) {
	if (!a->lee) {
		dense(a->n, a->basis, 1, a->ld, line, step);
		return;
	}
	switch (a->n) {
	case 1:
		line[0] = __fmul_rn(line[0], a->mean);
		break;
#define CASE(N) \
	case N: \
		inverse_held_##N(line, step, secants, a->mean, a->scale); \
		break;
		EACH_POWER(CASE)
#undef CASE
	}
}

INLINE unsigned magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }

// sum_before returns the sum of n over the lower lanes, and adds the sum over all lanes to *total.
INLINE int sum_before(int n, int *total) {
	const int lane = threadIdx.x & 31;
	int sum = n;
	for (int step = 1; step < 32; step *= 2) {
		const int before = __shfl_up_sync(ALL_LANES, sum, step);
		sum += lane >= step ? before : 0;
	}
	const int start = *total + sum - n;
	*total += __shfl_sync(ALL_LANES, sum, 31);
	return start;
}
