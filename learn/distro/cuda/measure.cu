// Kernels that compute norms and floors.

#define BLOCK 65536      // elements of a sum of squares
#define SAMPLE 512       // consecutive elements that a floor samples …
#define SAMPLE_STEP 4096 // … in each group of this size
#define WHOLE 32768      // a floor reads all elements of a tensor up to this size

typedef struct {
	model m; // of blocks
	const float *const *tensors;
	double *sums; // of the blocks
} squaring;

typedef struct {
	model m; // of samples
	const float *const *delta, *const *grad;
	double *sums; // of the samples
	float decay, rate;
} sampling;

typedef struct {
	model m; // of samples
	const double *sums;
	float *floors; // of the tensors
	float least;
} flooring;

typedef char squaring_is_40_bytes[sizeof(squaring) == 40 ? 1 : -1];
typedef char sampling_is_56_bytes[sizeof(sampling) == 56 ? 1 : -1];
typedef char flooring_is_48_bytes[sizeof(flooring) == 48 ? 1 : -1];

INLINE long long elements(const plan *p) { return p->chunks * p->column.n * p->row.n; }

// total returns the sum over the threads of a block, added in their order.
INLINE double total(double sum, double *sums) {
	__syncthreads(); // the threads may still read the sums of an earlier call
	sums[threadIdx.x] = sum;
	__syncthreads();
	sum = 0;
	for (int i = 0; i < THREADS; i++)
		sum = __dadd_rn(sum, sums[i]);
	return sum;
}

// The sums of squares of each BLOCK elements of a tensor, in double precision.
KERNEL psyche_distro_squares(squaring s) {
	__shared__ double sums[THREADS];
	for (long long work = blockIdx.x; work < s.m.firsts[s.m.tensors]; work += gridDim.x) {
		const long long tensor = tensor_of(&s.m, work), first = (work - s.m.firsts[tensor]) * BLOCK;
		const long long left = elements(&s.m.plans[tensor]) - first, count = left < BLOCK ? left : BLOCK;
		const float *values = s.tensors[tensor] + first;
		double sum = 0;
		UNROLL_BATCH for (long long i = threadIdx.x; i < count; i += THREADS)
			sum = __dadd_rn(sum, __dmul_rn(values[i], values[i]));
		sum = total(sum, sums);
		if (threadIdx.x == 0)
			s.sums[work] = sum;
	}
}

// The sums of squares of a sample of the momenta: see Kernel.Floor. A tensor of up to WHOLE elements
// has one sample.
KERNEL psyche_distro_samples(sampling s) {
	__shared__ double sums[THREADS];
	for (long long work = blockIdx.x; work < s.m.firsts[s.m.tensors]; work += gridDim.x) {
		const long long tensor = tensor_of(&s.m, work), all = elements(&s.m.plans[tensor]);
		const long long first = (work - s.m.firsts[tensor]) * SAMPLE_STEP, left = all - first;
		const long long count = all <= WHOLE ? all : left < SAMPLE ? left : SAMPLE;
		const float *delta = s.delta[tensor] + first, *grad = s.grad[tensor] + first;
		double sum = 0;
		UNROLL_BATCH for (long long i = threadIdx.x; i < count; i += THREADS) {
			const double x = __fadd_rn(__fmul_rn(s.decay, delta[i]), __fmul_rn(s.rate, grad[i]));
			sum = __dadd_rn(sum, __dmul_rn(x, x));
		}
		sum = total(sum, sums);
		if (threadIdx.x == 0)
			s.sums[work] = sum;
	}
}

// The floor of each tensor: 2⁻¹⁰ of the root mean square of its samples, and at least least; zero if
// least is negative. A floor that is not finite is least: psyche_distro_encode finds the numbers that are
// not finite.
KERNEL psyche_distro_floors(flooring f) {
	__shared__ double sums[THREADS];
	for (long long tensor = blockIdx.x; tensor < f.m.tensors; tensor += gridDim.x) {
		const long long first = f.m.firsts[tensor], samples = f.m.firsts[tensor + 1] - first;
		double sum = 0;
		UNROLL_BATCH for (long long i = threadIdx.x; i < samples; i += THREADS)
			sum = __dadd_rn(sum, f.sums[first + i]);
		sum = total(sum, sums);
		const long long all = elements(&f.m.plans[tensor]), left = all - (samples - 1) * SAMPLE_STEP;
		const long long count = all <= WHOLE ? all : (samples - 1) * SAMPLE + (left < SAMPLE ? left : SAMPLE);
		const float floor = __double2float_rn(__dmul_rn(0x1p-10, __dsqrt_rn(__ddiv_rn(sum, (double)count))));
		const float larger = magnitude(floor) <= LARGEST && floor > f.least ? floor : f.least;
		if (threadIdx.x == 0)
			f.floors[tensor] = f.least < 0 ? 0 : larger;
	}
}
