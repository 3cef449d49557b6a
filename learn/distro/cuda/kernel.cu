// The kernels of package distro for a GPU. They compute the same bits as the kernels for CPUs: the
// order of the single-precision operations is the order in learn/distro/reference.go, transform.go
// and merge.go. Every operation is one of the intrinsics below, which round once and are never
// contracted.
//
// A block of THREADS threads works on a strip of a chunk, and each thread on one column of the
// strip at a time. The code between two barriers is written as EACH_THREAD, so that this source is
// also plain C for a CPU. For that, cudatest/testdata/driver.c defines the macros of the next
// section and runs the threads of a block one after the other.

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ __launch_bounds__(64) void
#define INLINE static __device__ __forceinline__
#define NOINLINE static __device__ __noinline__
#define UNROLL _Pragma("unroll")
#define EACH_THREAD for (int lane = threadIdx.x, once = 1; once; once = 0)
#define SYNC __syncthreads()
#define SHARED(type, name, size) __shared__ type name[size]
#define TABLE static __device__ const
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

#define THREADS 64
#define MAX_CHUNK 128
#define TILE 4096      // floats of a strip: 64 columns of up to 64 rows, or 32 of up to 128
#define BAND 4096      // coefficients of a chunk that are merged at a time
#define LARGEST 0x7f7fffffu
#define LEAST 0x0d800000u // bits of 2⁻¹⁰⁰

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
// firsts[t] to firsts[t + 1].
typedef struct {
	const plan *plans;
	const long long *firsts;
	long long tensors;
} model;

// One result of a tensor. It has places entries for each chunk. Chunk c uses its first counts[c]
// entries.
typedef struct {
	const unsigned short *counts, *indices;
	const float *values;
	long long places;
} sent;

typedef struct {
	model m;             // of strips
	const sent *results; // the results of all tensors one after the other, each for all tensors
	long long count;     // of results, below 65,536
	float *const *to;
	const float *rates; // rates of a chunk, for 0 … count results that sent something in it
	float factor;
} decoding;

typedef struct {
	model m; // of chunks
	const float *const *delta, *const *grad;
	float *const *left;       // receives the new momenta; may be delta
	const long long *entries; // number of the first entry of each tensor
	const float *floors;      // of the tensors
	unsigned short *counts, *indices;
	float *values;
	long long *bad; // the first chunk that is not finite; initially a larger number
	long long k;    // at most, for each chunk
	float decay, rate;
} encoding;

typedef char plan_is_96_bytes[sizeof(plan) == 96 ? 1 : -1];
typedef char decoding_is_64_bytes[sizeof(decoding) == 64 ? 1 : -1];
typedef char encoding_is_112_bytes[sizeof(encoding) == 112 ? 1 : -1];

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

INLINE long long place(const plan *p, long long chunk) {
	return chunk / p->blocks * p->column.n * p->stride + chunk % p->blocks * p->row.n;
}

// Lee's recursion on the N values of x with scratch t: leeForward and leeInverse of
// transform.go. SUB is the name of the function for N/2 values.
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
	NOINLINE void forward_held_##N(float *line, int step, const float *secants) { \
		float x[N], t[N]; \
		UNROLL for (int i = 0; i < N; i++) x[i] = line[i * step]; \
		forward_##N(x, t, secants); \
		UNROLL for (int i = 0; i < N; i++) line[i * step] = x[i]; \
	} \
	NOINLINE void inverse_held_##N(float *line, int step, const float *secants) { \
		float x[N], t[N]; \
		UNROLL for (int i = 0; i < N; i++) x[i] = line[i * step]; \
		inverse_##N(x, t, secants); \
		UNROLL for (int i = 0; i < N; i++) line[i * step] = x[i]; \
	}

LEE(2, 1, 1)
LEE(4, 2, 2)
LEE(8, 4, 4)
LEE(16, 8, 8)
LEE(32, 16, 16)
LEE(64, 32, 32)

// For 128 points only the halves fit the registers.
NOINLINE void forward_held_128(float *line, int step, const float *secants) {
	float t[128];
	for (int i = 0; i < 64; i++) {
		const float a = line[i * step], b = line[(127 - i) * step];
		t[i] = __fadd_rn(a, b);
		t[64 + i] = __fmul_rn(__fsub_rn(a, b), secants[64 + i]);
	}
	forward_held_64(t, 1, secants);
	forward_held_64(t + 64, 1, secants);
	for (int i = 0; i < 63; i++) {
		line[2 * i * step] = t[i];
		line[(2 * i + 1) * step] = __fadd_rn(t[64 + i], t[64 + i + 1]);
	}
	line[126 * step] = t[63];
	line[127 * step] = t[127];
}

NOINLINE void inverse_held_128(float *line, int step, const float *secants) {
	float t[128];
	t[0] = line[0];
	t[64] = line[step];
	for (int i = 1; i < 64; i++) {
		t[i] = line[2 * i * step];
		t[64 + i] = __fadd_rn(line[(2 * i - 1) * step], line[(2 * i + 1) * step]);
	}
	inverse_held_64(t, 1, secants);
	inverse_held_64(t + 64, 1, secants);
	for (int i = 0; i < 64; i++) {
		const float a = t[i], b = __fmul_rn(t[64 + i], secants[64 + i]);
		line[i * step] = __fadd_rn(a, b);
		line[(127 - i) * step] = __fsub_rn(a, b);
	}
}

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

INLINE void scale(const axis *a, float *line, int step) {
	line[0] = __fmul_rn(line[0], a->mean);
	for (int k = 1; k < a->n; k++)
		line[k * step] = __fmul_rn(line[k * step], a->scale);
}

#define EACH_POWER(CASE) CASE(2) CASE(4) CASE(8) CASE(16) CASE(32) CASE(64) CASE(128)

// forward replaces the values of a line, step floats apart, by their DCT. For one point Lee's
// recursion does nothing.
NOINLINE void forward(const axis *a, const float *secants, float *line, int step) {
	if (!a->lee) {
		dense(a->n, a->basis, a->ld, 1, line, step);
		return;
	}
	switch (a->n) {
#define CASE(N) \
	case N: \
		forward_held_##N(line, step, secants); \
		break;
		EACH_POWER(CASE)
#undef CASE
	}
	scale(a, line, step);
}

// inverse is the inverse of forward.
NOINLINE void inverse(const axis *a, const float *secants, float *line, int step) {
	if (!a->lee) {
		dense(a->n, a->basis, 1, a->ld, line, step);
		return;
	}
	scale(a, line, step);
	switch (a->n) {
#define CASE(N) \
	case N: \
		inverse_held_##N(line, step, secants); \
		break;
		EACH_POWER(CASE)
#undef CASE
	}
}

// strip_width returns the number of columns of a chunk that a block processes at a time.
INLINE int strip_width(const plan *p) { return p->column.n <= TILE / THREADS ? THREADS : TILE / MAX_CHUNK; }

// collect adds a thread's share of one result's coefficients, from index base on, to the sums. The
// indices of a result are distinct, so no two threads change the same sum.
INLINE void collect(int lane, const sent *r, long long chunk, int base,
	unsigned *touched, float *sums, unsigned short *senders) {
	const int count = r->counts[chunk];
	for (int e = lane; e < count; e += THREADS) {
		const int at = (int)r->indices[chunk * r->places + e] - base;
		if (at < 0 || at >= BAND)
			continue;
		const float value = r->values[chunk * r->places + e];
		const unsigned bit = 1u << (at & 31);
		if (atomicOr(&touched[at >> 5], bit) & bit) {
			sums[at] = __fadd_rn(sums[at], value);
			senders[at]++;
		} else {
			sums[at] = value;
			senders[at] = 1;
		}
	}
}

// expand adds the basis rows of the coefficients to a thread's column of the tile, in ascending
// order of index.
INLINE void expand(const plan *p, int base, const unsigned *touched, const float *means, float *column, int width, int j) {
	const int cols = p->row.n;
	for (int word = 0; word < BAND / 32; word++)
		for (unsigned set = touched[word]; set; set &= set - 1) {
			const int at = word * 32 + __ffs((int)set) - 1;
			const int index = base + at;
			float *u = column + index / cols * width;
			*u = __fadd_rn(*u, __fmul_rn(means[at], p->row.basis[index % cols * p->row.ld + j]));
		}
}

// chunk_rate returns the rate of a chunk, for the number of results that sent something in it.
INLINE float chunk_rate(const decoding *d, long long tensor, long long chunk) {
	int speakers = 0;
	for (long long r = 0; r < d->count; r++)
		speakers += d->results[r * d->m.tensors + tensor].counts[chunk] > 0;
	return d->rates[speakers];
}

// descend moves a weight by the rate against the sign of u, after its decay.
INLINE float descend(float w, float u, float rate, float factor) {
	const float step = u > 0 ? rate : u < 0 ? -rate : 0.0f;
	return __fsub_rn(__fmul_rn(w, factor), step);
}

// decode applies the mean of the results to the tensors, strip by strip.
INLINE void decode(const decoding *d, int add) {
	SHARED(float, tile, TILE);
	SHARED(float, sums, BAND);
	SHARED(unsigned short, senders, BAND);
	SHARED(unsigned, touched, BAND / 32);
	for (long long work = blockIdx.x; work < d->m.firsts[d->m.tensors]; work += gridDim.x) {
		const long long tensor = tensor_of(&d->m, work), strip = work - d->m.firsts[tensor];
		const plan *p = &d->m.plans[tensor];
		const int rows = p->column.n, cols = p->row.n;
		const int width = strip_width(p), strips = (cols + width - 1) / width;
		const long long chunk = strip / strips;
		const int first = (int)(strip % strips) * width;
		float *corner = d->to[tensor] + place(p, chunk) + first;
		EACH_THREAD {
			if (lane < width)
				for (int i = 0; i < rows; i++)
					tile[i * width + lane] = 0;
		}
		for (int base = 0; base < rows * cols; base += BAND) {
			EACH_THREAD {
				for (int word = lane; word < BAND / 32; word += THREADS)
					touched[word] = 0;
			}
			SYNC;
			for (long long r = 0; r < d->count; r++) {
				EACH_THREAD { collect(lane, &d->results[r * d->m.tensors + tensor], chunk, base, touched, sums, senders); }
				SYNC;
			}
			EACH_THREAD {
				for (int word = lane; word < BAND / 32; word += THREADS)
					for (unsigned set = touched[word]; set; set &= set - 1) {
						const int at = word * 32 + __ffs((int)set) - 1;
						sums[at] = __fdiv_rn(sums[at], (float)senders[at]);
					}
			}
			SYNC;
			EACH_THREAD {
				if (lane < width && first + lane < cols)
					expand(p, base, touched, sums, tile + lane, width, first + lane);
			}
			SYNC;
		}
		EACH_THREAD {
			if (lane < width && first + lane < cols) {
				const float rate = add ? 0.0f : chunk_rate(d, tensor, chunk);
				inverse(&p->column, p->secants, tile + lane, width);
				for (int i = 0; i < rows; i++) {
					float *to = corner + i * p->stride + lane;
					const float u = tile[i * width + lane];
					*to = add ? __fadd_rn(*to, u) : descend(*to, u, rate, d->factor);
				}
			}
		}
	}
}

// w ← w·factor − rate·sign(DCT⁻¹(mean of the results))
KERNEL psyche_distro_apply(decoding d) { decode(&d, 0); }

// δ ← δ + DCT⁻¹(mean of the results)
KERNEL psyche_distro_add(decoding d) { decode(&d, 1); }

INLINE unsigned magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }

// The encoding of one chunk.
typedef struct {
	const plan *p;
	const float *delta, *grad; // of the chunk's first element
	float *left;
	unsigned short *count, *indices;
	float *values;
	int k;
	float decay, rate, floor;
} chunk_encoding;

INLINE chunk_encoding chunk_of(const encoding *e, long long number) {
	const long long tensor = tensor_of(&e->m, number), chunk = number - e->m.firsts[tensor];
	const plan *p = &e->m.plans[tensor];
	const long long corner = place(p, chunk);
	const int size = p->column.n * p->row.n, k = e->k < size ? (int)e->k : size;
	const long long entries = e->entries[tensor] + chunk * k;
	const chunk_encoding c = {p, e->delta[tensor] + corner, e->grad[tensor] + corner, e->left[tensor] + corner,
		e->counts + number, e->indices + entries, e->values + entries, k, e->decay, e->rate, e->floors[tensor]};
	return c;
}

// momentum returns β·δ + η·g of one element, or zero if the value is too small for a momentum. The
// subtraction of the sent part recomputes it later from the same numbers.
INLINE float momentum(const chunk_encoding *e, long long at) {
	const float x = __fadd_rn(__fmul_rn(e->decay, e->delta[at]), __fmul_rn(e->rate, e->grad[at]));
	return magnitude(x) < LEAST ? 0.0f : x;
}

#define WORDS (MAX_CHUNK * MAX_CHUNK / 32)
#define BINS 256

// A block's selection from the coefficients of a chunk.
typedef struct {
	unsigned bins[BINS];
	unsigned above[WORDS], equal[WORDS]; // bit sets over the coefficients
	unsigned starts[WORDS];              // number of selected coefficients before a word
	unsigned kth, rank, count, largest;
} selection;

// count_digits counts how often each digit occurs in a thread's share of the magnitudes that match
// the known prefix.
INLINE void count_digits(int lane, int rows, int cols, const float *coefficients, int ld, unsigned known, int shift, selection *s) {
	for (int b = 0; b < rows; b++)
		for (int d = lane; d < cols; d += THREADS) {
			const unsigned m = magnitude(coefficients[b * ld + d]);
			if ((m & known) == s->kth)
				atomicAdd(&s->bins[(m & ~known) >> shift], 1u);
		}
}

// fix_digit extends the prefix by the next digit of the magnitude with the wanted rank.
INLINE void fix_digit(int shift, selection *s) {
	unsigned bin = BINS - 1, rank = s->rank;
	while (bin > 0 && s->bins[bin] < rank)
		rank -= s->bins[bin--];
	s->rank = rank;
	s->kth |= bin << shift;
}

// mark sorts a thread's share of the coefficients into two sets: above the k-th magnitude, and
// equal to it. It omits zeros.
INLINE void mark(int lane, int rows, int cols, const float *coefficients, int ld, selection *s) {
	for (int b = 0; b < rows; b++)
		for (int d = lane; d < cols; d += THREADS) {
			const unsigned m = magnitude(coefficients[b * ld + d]);
			const int index = b * cols + d;
			if (m > s->kth)
				atomicOr(&s->above[index >> 5], 1u << (index & 31));
			else if (m == s->kth && m != 0)
				atomicOr(&s->equal[index >> 5], 1u << (index & 31));
		}
}

// settle adds the lowest indices of the equal coefficients to the set above, up to k in total, and
// counts the set.
INLINE void settle(int words, int k, selection *s) {
	int room = k;
	for (int word = 0; word < words; word++)
		room -= __popc(s->above[word]);
	s->count = 0;
	for (int word = 0; word < words; word++) {
		unsigned equal = s->equal[word];
		for (; equal && room > 0; equal &= equal - 1, room--)
			s->above[word] |= equal & (0u - equal);
		s->starts[word] = s->count;
		s->count += __popc(s->above[word]);
	}
}

// select_top writes the chunk's k largest coefficients to the result, in ascending order of index.
// See select_many in learn/distro/kernel.c.
INLINE void select_top(const chunk_encoding *e, const float *coefficients, int ld, selection *s) {
	const int rows = e->p->column.n, cols = e->p->row.n, words = (rows * cols + 31) / 32, k = e->k;
	unsigned known = 0;
	for (int shift = 23; shift >= 0; shift = shift > 8 ? shift - 8 : shift - 7) {
		EACH_THREAD {
			for (int bin = lane; bin < BINS; bin += THREADS)
				s->bins[bin] = 0;
			if (shift == 23 && lane == 0)
				s->kth = 0, s->rank = k;
		}
		SYNC;
		EACH_THREAD { count_digits(lane, rows, cols, coefficients, ld, known, shift, s); }
		SYNC;
		EACH_THREAD {
			if (lane == 0)
				fix_digit(shift, s);
		}
		SYNC;
		known = ~0u << shift & 0x7fffffffu;
	}
	EACH_THREAD {
		for (int word = lane; word < words; word += THREADS)
			s->above[word] = s->equal[word] = 0;
	}
	SYNC;
	EACH_THREAD { mark(lane, rows, cols, coefficients, ld, s); }
	SYNC;
	EACH_THREAD {
		if (lane == 0) {
			settle(words, k, s);
			if (s->largest < magnitude(e->floor))
				s->count = 0;
			*e->count = (unsigned short)s->count;
		}
	}
	SYNC;
	EACH_THREAD {
		for (int word = lane; word < words; word += THREADS) {
			unsigned at = s->starts[word];
			for (unsigned set = s->count ? s->above[word] : 0; set; set &= set - 1, at++) {
				const int index = word * 32 + __ffs((int)set) - 1;
				e->indices[at] = (unsigned short)index;
				e->values[at] = coefficients[index / cols * ld + index % cols];
			}
		}
		for (int at = (int)s->count + lane; at < k; at += THREADS) {
			e->indices[at] = 0;
			e->values[at] = 0;
		}
	}
	SYNC;
}

// subtract removes a chunk's result from one column of the momentum. line is scratch memory.
INLINE void subtract(const chunk_encoding *e, int count, int j, float *line, int ld) {
	const plan *p = e->p;
	const int rows = p->column.n, cols = p->row.n;
	for (int i = 0; i < rows; i++)
		line[i * ld] = 0;
	for (int at = 0; at < count; at++) {
		const int index = e->indices[at];
		float *u = line + index / cols * ld;
		*u = __fadd_rn(*u, __fmul_rn(e->values[at], p->row.basis[index % cols * p->row.ld + j]));
	}
	inverse(&p->column, p->secants, line, ld);
	for (int i = 0; i < rows; i++) {
		const long long at = i * p->stride + j;
		e->left[at] = __fsub_rn(momentum(e, at), line[i * ld]);
	}
}

// Kernel.EncodeTo for a model, chunk by chunk. The launch gives each block rows·(cols|1) floats of
// shared memory for the coefficients. The distance between rows is an odd number of floats, so that
// accesses spread over the banks in both directions of a transform.
KERNEL psyche_distro_encode(encoding all) {
	DYNAMIC_SHARED(float, coefficients);
	SHARED(selection, shared, 1);
	selection *s = &shared[0];
	for (long long number = blockIdx.x; number < all.m.firsts[all.m.tensors]; number += gridDim.x) {
		const chunk_encoding e = chunk_of(&all, number);
		const plan *p = e.p;
		const int rows = p->column.n, cols = p->row.n, ld = cols | 1;
		EACH_THREAD {
			if (lane == 0)
				s->largest = 0;
			for (int j = lane; j < cols; j += THREADS) {
				for (int i = 0; i < rows; i++)
					coefficients[i * ld + j] = momentum(&e, i * p->stride + j);
				forward(&p->column, p->secants, coefficients + j, ld);
			}
		}
		SYNC;
		EACH_THREAD {
			for (int i = lane; i < rows; i += THREADS) {
				unsigned largest = 0;
				forward(&p->row, p->secants, coefficients + i * ld, 1);
				for (int j = 0; j < cols; j++)
					largest = magnitude(coefficients[i * ld + j]) > largest ? magnitude(coefficients[i * ld + j]) : largest;
				atomicMax(&s->largest, largest);
			}
		}
		SYNC;
		if (s->largest > LARGEST) {
			SYNC;
			EACH_THREAD {
				if (lane == 0)
					atomicMin(all.bad, number);
			}
			continue;
		}
		select_top(&e, coefficients, ld, s);
		EACH_THREAD {
			for (int j = lane; j < cols; j += THREADS)
				subtract(&e, (int)s->count, j, coefficients + j, ld);
		}
		SYNC;
	}
}
