// The kernel that encodes momenta.

#define LEAST 0x0d800000u // bits of 2⁻¹⁰⁰
#define SETS (MAX_CHUNK * MAX_CHUNK / 32)

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

typedef char encoding_is_112_bytes[sizeof(encoding) == 112 ? 1 : -1];

// The encoding of one chunk.
typedef struct {
	const plan *p;
	const float *delta, *grad; // of the chunk's first element
	float *left;
	unsigned short *count, *indices;
	float *values;
	long long stride; // elements to the next row
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
		e->counts + number, e->indices + entries, e->values + entries, p->stride, k, e->decay, e->rate, e->floors[tensor]};
	return c;
}

// momentum returns β·δ + η·g of one element, or zero if the value is too small for a momentum. The
// subtraction of the sent part recomputes it later from the same numbers.
INLINE float momentum(const chunk_encoding *e, float delta, float grad) {
	const float x = __fadd_rn(__fmul_rn(e->decay, delta), __fmul_rn(e->rate, grad));
	return magnitude(x) < LEAST ? 0.0f : x;
}

// read_momenta reads BATCH momenta, stride elements apart.
INLINE void read_momenta(const chunk_encoding *e, long long at, long long stride, float x[BATCH]) {
	float delta[BATCH], grad[BATCH];
	UNROLL for (int n = 0; n < BATCH; n++) {
		delta[n] = e->delta[at + n * stride];
		grad[n] = e->grad[at + n * stride];
	}
	UNROLL for (int n = 0; n < BATCH; n++) x[n] = momentum(e, delta[n], grad[n]);
}

// A block's selection from the coefficients of a chunk.
typedef struct {
	unsigned list[THREADS];            // the largest magnitude of each thread, then candidates
	unsigned candidates;               // number of candidates; only the first THREADS are in the list
	unsigned counts[2][WARPS];         // of magnitudes, by warp
	unsigned above[SETS], equal[SETS]; // bit sets over the coefficients
	unsigned starts[SETS];             // number of selected coefficients before a word
	unsigned count;                    // of selected coefficients
	float values[THREADS];             // selected coefficients and their places
	unsigned short places[THREADS];
} selection;

// A walk visits the coefficients of a chunk in shared memory, from the thread's number on, THREADS
// at a time.
typedef struct {
	int index, at;       // of the coefficient; its position in shared memory
	int column, cols;    // its column; columns of the chunk
	int step, step_cols; // change of at and of column
	int wrap;            // change of at if the column exceeds cols
} walk;

INLINE walk walk_from_start(int cols, int ld) {
	const int lane = threadIdx.x;
	const walk w = {lane, lane / cols * ld + lane % cols, lane % cols, cols,
		THREADS / cols * ld + THREADS % cols, THREADS % cols, ld - cols};
	return w;
}

INLINE void advance(walk *w) {
	w->index += THREADS;
	w->at += w->step;
	w->column += w->step_cols;
	if (w->column >= w->cols) {
		w->column -= w->cols;
		w->at += w->wrap;
	}
}

// kth_of_list returns the k-th largest of the THREADS magnitudes in a list, or a smaller number that
// exactly k magnitudes reach. It returns 0 if fewer than k are not zero. Each warp does all the work.
INLINE unsigned kth_of_list(const unsigned *list, int k) {
	const int lane = threadIdx.x & 31;
	const unsigned a = list[lane], b = list[lane + 32];
	unsigned low = 0;
	for (int bit = 30; bit >= 0; bit--) {
		const unsigned t = low | 1u << bit;
		const int n = __popc(__ballot_sync(ALL_LANES, a >= t)) + __popc(__ballot_sync(ALL_LANES, b >= t));
		if (n < k)
			continue;
		low = t;
		if (n == k)
			break;
	}
	return low;
}

// kth_of_all is kth_of_list for all coefficients of a chunk.
INLINE unsigned kth_of_all(const float *coefficients, int size, int cols, int ld, int k, selection *s) {
	unsigned low = 0;
	for (int bit = 30; bit >= 0; bit--) {
		const unsigned t = low | 1u << bit;
		unsigned n = 0;
		for (walk w = walk_from_start(cols, ld); w.index < size; advance(&w))
			n += magnitude(coefficients[w.at]) >= t;
		for (int other = 16; other > 0; other /= 2)
			n += __shfl_xor_sync(ALL_LANES, n, other);
		if ((threadIdx.x & 31) == 0)
			s->counts[bit & 1][threadIdx.x / 32] = n;
		__syncthreads();
		n = 0;
		for (int warp = 0; warp < WARPS; warp++)
			n += s->counts[bit & 1][warp];
		if (n < (unsigned)k)
			continue;
		low = t;
		if (n == (unsigned)k)
			break;
	}
	return low;
}

// threshold returns the k-th largest magnitude of a chunk, or a smaller number that exactly k
// magnitudes reach. It returns 0 or 1 if fewer than k are not zero. If k threads have a magnitude of at
// least x, then so has the k-th largest magnitude. So usually few magnitudes remain as candidates.
INLINE unsigned threshold(const float *coefficients, int size, int cols, int ld, int k, selection *s) {
	const unsigned bound = k <= THREADS ? kth_of_list(s->list, k) : 0, least = bound > 1 ? bound : 1;
	__syncthreads();
	s->list[threadIdx.x] = 0;
	__syncthreads();
	for (walk w = walk_from_start(cols, ld); w.index < size; advance(&w)) {
		const unsigned m = magnitude(coefficients[w.at]);
		const unsigned at = m >= least ? atomicAdd(&s->candidates, 1u) : THREADS;
		if (at < THREADS)
			s->list[at] = m;
	}
	__syncthreads();
	if (s->candidates > THREADS)
		return kth_of_all(coefficients, size, cols, ld, k, s);
	const unsigned kth = kth_of_list(s->list, k);
	return kth > least ? kth : least;
}

// largest_of returns the largest magnitude of a chunk, and leaves the largest of each thread in the
// list.
INLINE unsigned largest_of(const float *coefficients, int size, int cols, int ld, selection *s) {
	unsigned largest = 0;
	for (walk w = walk_from_start(cols, ld); w.index < size; advance(&w)) {
		const unsigned m = magnitude(coefficients[w.at]);
		largest = m > largest ? m : largest;
	}
	s->list[threadIdx.x] = largest;
	if (threadIdx.x == 0)
		s->candidates = 0;
	__syncthreads();
	for (int i = 0; i < THREADS; i++)
		largest = s->list[i] > largest ? s->list[i] : largest;
	return largest;
}

// settle adds the lowest indices of the equal coefficients to the set above, up to k in total, and
// counts the set. One warp does this; lane l has the words l, l + 32, …
INLINE void settle(int words, int k, selection *s) {
	const int lane = threadIdx.x & 31;
	int above = 0, equal = 0, count = 0;
	for (int first = 0; first < words; first += 32)
		sum_before(first + lane < words ? __popc(s->above[first + lane]) : 0, &above);
	for (int first = 0; first < words; first += 32) {
		const int word = first + lane;
		unsigned set = word < words ? s->equal[word] : 0, taken = 0;
		const int room = k - above - sum_before(__popc(set), &equal);
		for (int n = 0; set && n < room; n++, set &= set - 1)
			taken |= set & (0u - set);
		if (word < words)
			s->above[word] |= taken;
		const int start = sum_before(word < words ? __popc(s->above[word]) : 0, &count);
		if (word < words)
			s->starts[word] = start;
	}
	if (lane == 0)
		s->count = count;
}

// select_top writes the chunk's k largest coefficients to the result, in ascending order of index.
// least is from threshold. If none is set, it selects none. See select_many in learn/distro/kernel.c.
INLINE void select_top(const chunk_encoding *e, unsigned least, int none, const float *coefficients, int ld, selection *s) {
	const int cols = e->p->row.n, size = e->p->column.n * cols, words = (size + 31) / 32, lane = threadIdx.x & 31;
	for (walk w = walk_from_start(cols, ld); w.index - lane < size; advance(&w)) {
		const unsigned m = w.index < size ? magnitude(coefficients[w.at]) : 0;
		const unsigned above = __ballot_sync(ALL_LANES, m > least), equal = __ballot_sync(ALL_LANES, m == least && m);
		if (lane == 0) {
			s->above[w.index >> 5] = none ? 0 : above;
			s->equal[w.index >> 5] = none ? 0 : equal;
		}
	}
	__syncthreads();
	if (threadIdx.x < 32)
		settle(words, e->k, s);
	__syncthreads();
	for (walk w = walk_from_start(cols, ld); w.index < size; advance(&w)) {
		const unsigned set = s->above[w.index >> 5];
		if (set >> lane & 1) {
			const int at = s->starts[w.index >> 5] + __popc(set & ((1u << lane) - 1));
			e->indices[at] = (unsigned short)w.index;
			e->values[at] = coefficients[w.at];
		}
	}
	for (int at = (int)(s->count + threadIdx.x); at < e->k; at += THREADS) {
		e->indices[at] = 0;
		e->values[at] = 0;
	}
	if (threadIdx.x == 0)
		*e->count = (unsigned short)s->count;
	__syncthreads();
}

// write_column writes the new momenta of column j: the momenta minus a line.
INLINE void write_column(const chunk_encoding *e, int rows, int j, const float *line, int ld) {
	const long long stride = e->stride;
	int i = 0;
	for (; i + BATCH <= rows; i += BATCH) {
		float x[BATCH];
		read_momenta(e, i * stride + j, stride, x);
		UNROLL for (int n = 0; n < BATCH; n++)
			e->left[(i + n) * stride + j] = __fsub_rn(x[n], line[(i + n) * ld]);
	}
	for (; i < rows; i++) {
		const long long at = i * stride + j;
		e->left[at] = __fsub_rn(momentum(e, e->delta[at], e->grad[at]), line[i * ld]);
	}
}

// subtract removes a chunk's result from the momentum. lines is scratch memory for the chunk. Each
// thread has columns of it.
INLINE void subtract(const chunk_encoding *e, float *lines, int ld, selection *s) {
	const plan *p = e->p;
	const int rows = p->column.n, cols = p->row.n, count = (int)s->count;
	const float *basis = p->row.basis;
	const long long basis_ld = p->row.ld;
	for (int j = threadIdx.x; j < cols; j += THREADS)
		for (int i = 0; i < rows; i++)
			lines[i * ld + j] = 0;
	for (int done = 0; done < count; done += THREADS) {
		const int at = done + (int)threadIdx.x, here = count - done < THREADS ? count - done : THREADS;
		if (at < count) {
			s->places[threadIdx.x] = place_in_chunk(e->indices[at], cols);
			s->values[threadIdx.x] = e->values[at];
		}
		__syncthreads();
		for (int j = threadIdx.x; j < cols; j += THREADS)
			for (int n = 0; n < here; n++) {
				float *u = lines + (s->places[n] >> 8) * ld + j;
				*u = __fadd_rn(*u, __fmul_rn(s->values[n], basis[(s->places[n] & 255) * basis_ld + j]));
			}
		__syncthreads();
	}
	for (int j = threadIdx.x; j < cols; j += THREADS) {
		inverse(&p->column, p->secants, lines + j, ld);
		write_column(e, rows, j, lines + j, ld);
	}
}

// read_column reads the momenta of column j into a line.
INLINE void read_column(const chunk_encoding *e, int rows, int j, float *line, int ld) {
	const long long stride = e->stride;
	int i = 0;
	for (; i + BATCH <= rows; i += BATCH) {
		float x[BATCH];
		read_momenta(e, i * stride + j, stride, x);
		UNROLL for (int n = 0; n < BATCH; n++) line[(i + n) * ld] = x[n];
	}
	for (; i < rows; i++)
		line[i * ld] = momentum(e, e->delta[i * stride + j], e->grad[i * stride + j]);
}

// transform computes the DCT of a chunk's momentum.
INLINE void transform(const chunk_encoding *e, float *coefficients, int ld) {
	const plan *p = e->p;
	const int rows = p->column.n, cols = p->row.n;
	for (int j = threadIdx.x; j < cols; j += THREADS) {
		read_column(e, rows, j, coefficients + j, ld);
		forward(&p->column, p->secants, coefficients + j, ld);
	}
	__syncthreads();
	for (int i = threadIdx.x; i < rows; i += THREADS)
		forward(&p->row, p->secants, coefficients + i * ld, 1);
	__syncthreads();
}

// Kernel.EncodeTo for a model, chunk by chunk. The launch gives each block rows·(cols|1) floats of
// shared memory for the coefficients. The distance between rows is an odd number of floats, so that
// accesses spread over the banks in both directions of a transform.
KERNEL psyche_distro_encode(encoding all) {
	DYNAMIC_SHARED(float, coefficients);
	__shared__ selection s;
	for (long long number = blockIdx.x; number < all.m.firsts[all.m.tensors]; number += gridDim.x) {
		const chunk_encoding e = chunk_of(&all, number);
		const int cols = e.p->row.n, ld = cols | 1, size = e.p->column.n * cols;
		__syncthreads(); // the lines of the previous chunk may have another length
		transform(&e, coefficients, ld);
		const unsigned largest = largest_of(coefficients, size, cols, ld, &s);
		if (largest > LARGEST) {
			if (threadIdx.x == 0)
				atomicMin(all.bad, number);
			continue;
		}
		const unsigned least = threshold(coefficients, size, cols, ld, e.k, &s);
		select_top(&e, least, largest < magnitude(e.floor), coefficients, ld, &s);
		subtract(&e, coefficients, ld, &s);
	}
}
