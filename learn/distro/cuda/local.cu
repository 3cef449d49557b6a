// Kernels for local steps: see learn/localsteps.

#define STEPS 4 // elements that a thread of psyche_local_adamw processes together
#define MAX_UNIT 127 // the code of the smallest unit
#define UNITS 16     // codes that can suit a chunk, after the largest unit that can
#define INFINITE __longlong_as_double(0x7ffLL << 52)

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

typedef struct {
	model m;             // of chunks
	const sent *results; // the results of all tensors one after the other, each for all tensors
	long long count;     // of results
	const double *shares, *reach; // factors of each result of each tensor; the units of a tensor are fractions of its reach
	const sent *means;            // the result of each tensor to write
	double scale;
} averaging;

typedef char averaging_is_72_bytes[sizeof(averaging) == 72 ? 1 : -1];
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

// step_adamw makes one step of AdamW on an element: the operations of adamw_all in
// learn/torch/shim/loops.h, after the gradient is multiplied by clip.
INLINE void step_adamw(const stepping *s, float grad, float *mean, float *square, float *weight) {
	const float g = __fmul_rn(grad, s->clip);
	*mean = __fadd_rn(__fmul_rn(*mean, s->beta1), __fmul_rn(g, s->rest1));
	*square = __fadd_rn(__fmul_rn(*square, s->beta2), __fmul_rn(__fmul_rn(g, g), s->rest2));
	const float size = __fadd_rn(__fdiv_rn(__fsqrt_rn(*square), s->root), s->epsilon);
	*weight = __fsub_rn(__fmul_rn(*weight, s->keep), __fmul_rn(s->rate, __fdiv_rn(*mean, size)));
}

// One step of AdamW. Each thread reads STEPS elements before it writes the first.
KERNEL psyche_local_adamw(stepping s) {
	for (long long work = blockIdx.x; work < s.m.firsts[s.m.tensors]; work += gridDim.x) {
		const span part = span_of(&s.m, work);
		float *weights = s.weights[part.tensor], *means = s.means[part.tensor], *squares = s.squares[part.tensor];
		const float *grad = s.grad[part.tensor];
		if (!squares)
			continue;
		long long i = part.first + threadIdx.x;
		for (; i + (STEPS - 1) * THREADS < part.end; i += STEPS * THREADS) {
			float g[STEPS], m[STEPS], v[STEPS], w[STEPS];
			UNROLL for (int n = 0; n < STEPS; n++) {
				const long long at = i + n * THREADS;
				g[n] = grad[at], m[n] = means[at], v[n] = squares[at], w[n] = weights[at];
			}
			UNROLL for (int n = 0; n < STEPS; n++) {
				const long long at = i + n * THREADS;
				step_adamw(&s, g[n], &m[n], &v[n], &w[n]);
				means[at] = m[n], squares[at] = v[n], weights[at] = w[n];
			}
		}
		for (; i < part.end; i += THREADS)
			step_adamw(&s, grad[i], &means[i], &squares[i], &weights[i]);
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

// averages is a block's sum of the levels of all results in one band of a chunk.
typedef struct {
	double sums[BAND];
	unsigned touched[WORDS]; // bit set of the coefficients that are not zero
	unsigned starts[WORDS];  // number of these coefficients before a word
	double values[THREADS];  // entries that the block adds next
	unsigned short indices[THREADS];
} averages;

// add_levels adds entries, in order, to the sums that this thread owns.
INLINE void add_levels(int count, int base, averages *a) {
	for (int e = 0; e < count; e++) {
		const int at = (int)a->indices[e] - base;
		if (!owned(at))
			continue;
		const unsigned bit = 1u << (at & 31);
		a->sums[at] = __dadd_rn(a->touched[at >> 5] & bit ? a->sums[at] : 0, a->values[e]);
		a->touched[at >> 5] |= bit;
	}
}

// unit_of returns the size of a unit as a fraction of the reach: see learn/localsteps.
INLINE double unit_of(int code) {
	return __dmul_rn(7 - (code & 3), __longlong_as_double((long long)(1021 - (code >> 2)) << 52));
}

// add_group adds the levels of up to 32 results, from result first on.
INLINE void add_group(const averaging *d, long long tensor, long long chunk, long long first, int base, averages *a) {
	const long long tensors = d->m.tensors, from = first * tensors + tensor;
	const group g = group_of(&d->results[from], tensors, d->count - first, chunk);
	for (int done = 0; done < g.total; done += THREADS) {
		const int entry = done + (int)threadIdx.x;
		int within;
		const long long result = from + result_of(&g, entry, &within) * tensors;
		if (entry < g.total) {
			const sent *r = &d->results[result];
			const double size = __dmul_rn(d->reach[tensor], unit_of(r->units[chunk]));
			const signed char *levels = (const signed char *)r->values;
			a->indices[threadIdx.x] = r->indices[chunk * r->places + within];
			a->values[threadIdx.x] = __dmul_rn(d->shares[result], __dmul_rn(size, levels[chunk * r->places + within]));
		}
		__syncthreads();
		add_levels(g.total - done < THREADS ? g.total - done : THREADS, base, a);
		__syncthreads();
	}
}

// coefficient returns the change of a coefficient.
INLINE float coefficient(const averaging *d, double sum) { return -__double2float_rn(__dmul_rn(sum, d->scale)); }

// number_words removes coefficients of zero from the bit set of a band, and numbers the others from
// *total on. *total, which counts the coefficients of the chunk, is valid in the first warp only.
INLINE void number_words(const averaging *d, averages *a, int *total) {
	for (int word = threadIdx.x; word < WORDS; word += THREADS)
		for (unsigned set = a->touched[word]; set; set &= set - 1)
			if (coefficient(d, a->sums[word * 32 + __ffs((int)set) - 1]) == 0)
				a->touched[word] &= ~(set & (0u - set));
	__syncthreads();
	for (int word = threadIdx.x; threadIdx.x < 32 && word < WORDS; word += 32)
		a->starts[word] = sum_before(__popc(a->touched[word]), total);
	__syncthreads();
}

// The change of the coefficients of each chunk: the mean of the results, times the rate.
KERNEL psyche_local_mean(averaging d) {
	__shared__ averages a;
	for (long long number = d.m.firsts[0] + blockIdx.x; number < d.m.firsts[d.m.tensors]; number += gridDim.x) {
		const long long tensor = tensor_of(&d.m, number), chunk = number - d.m.firsts[tensor];
		const plan *p = &d.m.plans[tensor];
		const sent *to = &d.means[tensor];
		int total = 0;
		for (int base = 0; base < p->column.n * p->row.n; base += BAND) {
			for (int word = threadIdx.x; word < WORDS; word += THREADS)
				a.touched[word] = 0;
			for (long long first = 0; first < d.count; first += 32)
				add_group(&d, tensor, chunk, first, base, &a);
			number_words(&d, &a, &total);
			for (int word = threadIdx.x; word < WORDS; word += THREADS) {
				long long at = chunk * to->places + a.starts[word];
				for (unsigned set = a.touched[word]; set; set &= set - 1, at++) {
					const int index = word * 32 + __ffs((int)set) - 1;
					((unsigned short *)to->indices)[at] = (unsigned short)(base + index);
					((float *)to->values)[at] = coefficient(&d, a.sums[index]);
				}
			}
		}
		if (threadIdx.x == 0)
			((unsigned short *)to->counts)[chunk] = (unsigned short)total;
	}
}

typedef struct {
	model m;                  // of chunks
	const long long *entries; // number of the first entry of each tensor
	unsigned short *counts, *indices; // the largest coefficients of each chunk; then the part of them that is not sent
	float *values;
	unsigned short *sent_counts, *sent_indices;
	signed char *levels;
	unsigned char *units;
	const double *reach; // the units of a tensor are fractions of its reach; 0: nothing is sent
	long long k;         // at most, for each chunk
	double most;         // the largest level
} quantizing;

typedef char quantizing_is_112_bytes[sizeof(quantizing) == 112 ? 1 : -1];

// level_of returns the level that is nearest to a size.
INLINE double level_of(double size, double unit, double most) {
	const double level = floor(__dadd_rn(__ddiv_rn(size, unit), 0.5));
	return level < most ? level : most;
}

INLINE double size_of(float value) { return value < 0 ? -(double)value : (double)value; }

// squares_of returns the sum of the squared errors of count coefficients with a unit.
INLINE double squares_of(const float *values, int count, double unit, double most) {
	double sum = 0;
	for (int i = 0; i < count; i++) {
		const double size = size_of(values[i]);
		const double rest = __dadd_rn(size, -__dmul_rn(level_of(size, unit, most), unit));
		sum = __dadd_rn(sum, __dmul_rn(rest, rest));
	}
	return sum;
}

// unit_for returns the unit for count coefficients: chooser.unit of learn/localsteps.
INLINE int unit_for(const float *values, int count, double reach, double most) {
	double largest = 0, minimum = INFINITE;
	for (int i = 0; i < count; i++)
		largest = size_of(values[i]) > largest ? size_of(values[i]) : largest;
	const double share = __ddiv_rn(largest, reach);
	int first = 0;
	while (first < MAX_UNIT && !(unit_of(first) <= share))
		first++;
	const int end = first + UNITS < MAX_UNIT ? first + UNITS : MAX_UNIT;
	int best = first;
	for (int code = first; code <= end; code++) {
		const double squares = squares_of(values, count, __dmul_rn(reach, unit_of(code)), most);
		if (squares < minimum) {
			best = code;
			minimum = squares;
		}
	}
	return best;
}

// quantize_chunk rounds the coefficients of a chunk to levels, and returns the number of the levels. The part of each
// coefficient that is not sent replaces the coefficient.
INLINE int quantize_chunk(const quantizing *q, long long number, long long at, double reach) {
	const int count = q->counts[number], code = unit_for(q->values + at, count, reach, q->most);
	const double unit = __dmul_rn(reach, unit_of(code));
	int sent = 0, left = 0;
	for (int i = 0; i < count; i++) {
		const float value = q->values[at + i];
		const unsigned short index = q->indices[at + i];
		const double level = level_of(size_of(value), unit, q->most), negative = value < 0 ? -level : level;
		float rest = value;
		if (level != 0) {
			q->sent_indices[at + sent] = index;
			q->levels[at + sent++] = (signed char)negative;
			rest = __double2float_rn(__dadd_rn(value, -__dmul_rn(unit, negative)));
		}
		if (rest != 0) {
			q->indices[at + left] = index;
			q->values[at + left++] = rest;
		}
	}
	q->counts[number] = (unsigned short)left;
	q->units[number] = (unsigned char)(sent > 0 ? code : 0);
	return sent;
}

// localsteps.Quantize for a model. Each thread has a chunk.
KERNEL psyche_local_quantize(quantizing q) {
	for (long long block = blockIdx.x; block * THREADS < q.m.firsts[q.m.tensors]; block += gridDim.x) {
		const long long number = block * THREADS + threadIdx.x;
		if (number >= q.m.firsts[q.m.tensors])
			continue;
		const long long tensor = tensor_of(&q.m, number);
		const plan *p = &q.m.plans[tensor];
		const int size = p->column.n * p->row.n, k = q.k < size ? (int)q.k : size;
		const long long at = q.entries[tensor] + (number - q.m.firsts[tensor]) * k;
		int sent = 0;
		if (q.reach[tensor] > 0)
			sent = quantize_chunk(&q, number, at, q.reach[tensor]);
		else
			q.units[number] = 0;
		q.sent_counts[number] = (unsigned short)sent;
		for (int i = sent; i < k; i++) {
			q.sent_indices[at + i] = 0;
			q.levels[at + i] = 0;
		}
	}
}
