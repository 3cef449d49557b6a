// Kernels for local steps, element by element: see learn/localsteps.

typedef struct {
	model m; // of blocks
	float *const *weights;
	const float *const *grad;
	float *const *means, *const *squares; // running means; squares is NULL for tensors without a step
	float clip, beta1, rest1, beta2, rest2, root, epsilon, rate, keep;
} stepping;

typedef struct {
	model m; // of blocks
	const float *const *before;
	float *const *after, *const *momenta; // momenta are NULL without a momentum
	float factor;
} differing;

typedef char stepping_is_96_bytes[sizeof(stepping) == 96 ? 1 : -1];
typedef char differing_is_56_bytes[sizeof(differing) == 56 ? 1 : -1];

// span is the part of a tensor that a block of threads processes: elements first to end.
typedef struct {
	long long tensor, first, end;
} span;

INLINE span span_of(const model *m, long long work) {
	const long long tensor = tensor_of(m, work), first = (work - m->firsts[tensor]) * BLOCK;
	const long long all = elements(&m->plans[tensor]);
	const span s = {tensor, first, first + BLOCK < all ? first + BLOCK : all};
	return s;
}

// One step of AdamW: the operations of adamw_all in learn/torch/shim/loops.h, after the gradient is
// multiplied by clip.
KERNEL psyche_local_adamw(stepping s) {
	for (long long work = blockIdx.x; work < s.m.firsts[s.m.tensors]; work += gridDim.x) {
		const span part = span_of(&s.m, work);
		float *weights = s.weights[part.tensor], *means = s.means[part.tensor], *squares = s.squares[part.tensor];
		const float *grad = s.grad[part.tensor];
		for (long long i = part.first + threadIdx.x; squares && i < part.end; i += THREADS) {
			const float g = __fmul_rn(grad[i], s.clip);
			const float mean = __fadd_rn(__fmul_rn(means[i], s.beta1), __fmul_rn(g, s.rest1));
			const float square = __fadd_rn(__fmul_rn(squares[i], s.beta2), __fmul_rn(__fmul_rn(g, g), s.rest2));
			const float size = __fadd_rn(__fdiv_rn(__fsqrt_rn(square), s.root), s.epsilon);
			means[i] = mean;
			squares[i] = square;
			weights[i] = __fsub_rn(__fmul_rn(weights[i], s.keep), __fmul_rn(s.rate, __fdiv_rn(mean, size)));
		}
	}
}

// localsteps.Far: d = before − after replaces after. With a momentum u: u ← factor·u + d, and d +
// factor·u replaces after.
KERNEL psyche_local_far(differing d) {
	for (long long work = blockIdx.x; work < d.m.firsts[d.m.tensors]; work += gridDim.x) {
		const span part = span_of(&d.m, work);
		const float *before = d.before[part.tensor];
		float *after = d.after[part.tensor], *momenta = d.momenta[part.tensor];
		for (long long i = part.first + threadIdx.x; i < part.end; i += THREADS) {
			float far = __fsub_rn(before[i], after[i]);
			if (momenta) {
				momenta[i] = __fadd_rn(__fmul_rn(d.factor, momenta[i]), far);
				far = __fadd_rn(far, __fmul_rn(d.factor, momenta[i]));
			}
			after[i] = far;
		}
	}
}
