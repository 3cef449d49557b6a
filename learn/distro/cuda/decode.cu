// Kernels that apply results to tensors.

#define TILE 4096   // floats of a strip: 64 columns of up to 64 rows, or 32 of up to 128
#define BAND 4096   // coefficients of a chunk that are merged at a time
#define WORDS (BAND / 32)

#define FULL_VOTE 16

// One result of a tensor. It has places entries for each chunk. Chunk c uses its first counts[c]
// entries. In a result of levels each chunk has a unit, and values are signed bytes.
typedef struct {
	const unsigned short *counts, *indices;
	const float *values;
	const unsigned char *units;
	int places, vote;
} sent;

typedef struct {
	model m;             // of strips
	const sent *results; // the results of all tensors one after the other, each for all tensors
	long long count;     // of results, below 4,096
	float *const *to;
	float rate, votes; // of a chunk in which all results sent something; sum of the votes of the results
	float factor;
} decoding;

typedef char decoding_is_64_bytes[sizeof(decoding) == 64 ? 1 : -1];

// strip_width returns the number of columns of a chunk that a block processes at a time.
INLINE int strip_width(const plan *p) { return p->column.n <= TILE / THREADS ? THREADS : TILE / MAX_CHUNK; }

// merging is a block's merge of the coefficients of all results in one band of a chunk.
typedef struct {
	float sums[BAND];             // later the means
	unsigned short votes[BAND];   // sums of votes; later the places of the coefficients
	unsigned touched[WORDS];      // bit set of the coefficients that some result contains
	unsigned short words[WORDS];  // the words of the bit set that are not zero, in ascending order
	float values[THREADS];        // entries that the block merges next
	unsigned short indices[THREADS];
	unsigned char voters[THREADS]; // votes of the results of these entries
} merging;

// place_in_chunk returns the place of a coefficient: its row and its column.
INLINE unsigned short place_in_chunk(int index, int cols) { return (unsigned short)(index / cols << 8 | index % cols); }

// owned reports whether this thread merges a coefficient of a band. It owns whole words of the bit
// set.
INLINE int owned(int at) { return at >= 0 && at < BAND && (at >> 5) % THREADS == (int)threadIdx.x; }

// add_entries adds entries, in order, to the sums that this thread owns.
INLINE void add_entries(int count, int base, merging *m) {
	for (int e = 0; e < count; e++) {
		const int at = (int)m->indices[e] - base;
		if (!owned(at))
			continue;
		const unsigned bit = 1u << (at & 31);
		if (m->touched[at >> 5] & bit) {
			m->sums[at] = __fadd_rn(m->sums[at], m->values[e]);
			m->votes[at] += m->voters[e];
		} else {
			m->touched[at >> 5] |= bit;
			m->sums[at] = m->values[e];
			m->votes[at] = m->voters[e];
		}
	}
}

// A group of up to 32 results. Each lane of a warp has the number of entries of one result in a
// chunk, where they end among the entries of the group, and the vote of a result that has entries.
typedef struct {
	int count, end, total, vote;
} group;

INLINE group group_of(const sent *results, long long step, long long last, long long chunk) {
	const int lane = threadIdx.x & 31;
	group g = {lane < last ? results[lane * step].counts[chunk] : 0, 0, 0, 0};
	g.end = sum_before(g.count, &g.total) + g.count;
	g.vote = g.count > 0 ? results[lane * step].vote : 0;
	return g;
}

// votes_of returns the sum of the votes of the results that have entries.
INLINE int votes_of(const group *g) {
	int votes = FULL_VOTE * __popc(__ballot_sync(ALL_LANES, g->vote > 0));
	if (__ballot_sync(ALL_LANES, g->vote > 0 && g->vote < FULL_VOTE)) {
		votes = 0;
		sum_before(g->vote, &votes);
	}
	return votes;
}

// weight_of returns the weight of a sum of votes, where the weight of a full vote is 1. It is exact.
INLINE float weight_of(int votes) { return __fmul_rn((float)votes, 1.0f / FULL_VOTE); }

// result_of returns the result of an entry of a group, and the entry's number within the result. All
// lanes must call it.
INLINE int result_of(const group *g, int entry, int *within) {
	int result = 0; // the number of results that end at or before the entry
	for (int step = 16; step > 0; step /= 2)
		result += __shfl_sync(ALL_LANES, g->end, result + step - 1) <= entry ? step : 0;
	*within = entry - __shfl_sync(ALL_LANES, g->end - g->count, result);
	return result;
}

// merge_group adds the entries of up to 32 results, from result first on, and returns the sum of the
// votes of the results that have entries in the chunk.
INLINE int merge_group(const decoding *d, long long tensor, long long chunk, long long first, int base, merging *m) {
	const sent *results = &d->results[first * d->m.tensors + tensor];
	const group g = group_of(results, d->m.tensors, d->count - first, chunk);
	for (int done = 0; done < g.total; done += THREADS) {
		const int entry = done + (int)threadIdx.x;
		int within;
		const int result = result_of(&g, entry, &within);
		if (entry < g.total) {
			const sent *r = &results[result * d->m.tensors];
			m->indices[threadIdx.x] = r->indices[chunk * r->places + within];
			m->values[threadIdx.x] = __fmul_rn(r->values[chunk * r->places + within], weight_of(r->vote));
			m->voters[threadIdx.x] = (unsigned char)r->vote;
		}
		__syncthreads();
		add_entries(g.total - done < THREADS ? g.total - done : THREADS, base, m);
		__syncthreads();
	}
	return votes_of(&g);
}

// list_words lists the words of the bit set that are not zero, and returns their number. Each warp
// makes the whole list.
INLINE int list_words(merging *m) {
	const int lane = threadIdx.x & 31;
	int count = 0;
	for (int first = 0; first < WORDS; first += 32) {
		const int used = m->touched[first + lane] != 0;
		const int at = sum_before(used, &count);
		if (used && threadIdx.x < 32)
			m->words[at] = (unsigned short)(first + lane);
	}
	return count;
}

// merge computes the means of a band, which begins at coefficient base, and returns the sum of the votes
// of the results that have entries in the chunk.
INLINE int merge(const decoding *d, long long tensor, long long chunk, int base, int cols, merging *m) {
	int votes = 0;
	for (int word = threadIdx.x; word < WORDS; word += THREADS)
		m->touched[word] = 0;
	for (long long first = 0; first < d->count; first += 32)
		votes += merge_group(d, tensor, chunk, first, base, m);
	for (int word = threadIdx.x; word < WORDS; word += THREADS)
		for (unsigned set = m->touched[word]; set; set &= set - 1) {
			const int at = word * 32 + __ffs((int)set) - 1;
			m->sums[at] = __fdiv_rn(m->sums[at], weight_of(m->votes[at]));
			m->votes[at] = place_in_chunk(base + at, cols);
		}
	return votes;
}

// expand adds the basis rows of the coefficients in count words of the bit set to a column of the tile,
// in ascending order of index. basis is the column of the basis, with ld floats between its rows.
INLINE void expand(const float *basis, long long ld, int count, const merging *m, float *column, int width) {
	for (int n = 0; n < count; n++) {
		const int word = m->words[n];
		for (unsigned set = m->touched[word]; set; set &= set - 1) {
			const int at = word * 32 + __ffs((int)set) - 1, place = m->votes[at];
			float *u = column + (place >> 8) * width;
			*u = __fadd_rn(*u, __fmul_rn(m->sums[at], basis[(place & 255) * ld]));
		}
	}
}

// descend moves a weight by the rate against the sign of u, after its decay.
INLINE float descend(float w, float u, float rate, float factor) {
	const float step = u > 0 ? rate : u < 0 ? -rate : 0.0f;
	return __fsub_rn(__fmul_rn(w, factor), step);
}

// update returns the weight w after its update by u, or w + u if add is set.
INLINE float update(float w, float u, float rate, float factor, int add) {
	return add ? __fadd_rn(w, u) : descend(w, u, rate, factor);
}

// update_column updates a column of a chunk by a column of the tile. It reads BATCH weights before it
// writes the first.
INLINE void update_column(int rows, float *to, long long stride, const float *column, int width, float rate, float factor, int add) {
	int i = 0;
	for (; i + BATCH <= rows; i += BATCH) {
		float w[BATCH];
		UNROLL for (int n = 0; n < BATCH; n++) w[n] = to[(i + n) * stride];
		UNROLL for (int n = 0; n < BATCH; n++)
			to[(i + n) * stride] = update(w[n], column[(i + n) * width], rate, factor, add);
	}
	for (; i < rows; i++)
		to[i * stride] = update(to[i * stride], column[i * width], rate, factor, add);
}

// decode applies the mean of the results to the tensors, strip by strip. Each thread has a column of
// the strip.
INLINE void decode(const decoding *d, int add) {
	__shared__ float tile[TILE];
	__shared__ merging merged;
	const int lane = threadIdx.x;
	for (long long work = d->m.firsts[0] + blockIdx.x; work < d->m.firsts[d->m.tensors]; work += gridDim.x) {
		const long long tensor = tensor_of(&d->m, work), strip = work - d->m.firsts[tensor];
		const plan *p = &d->m.plans[tensor];
		const int rows = p->column.n, cols = p->row.n;
		const int width = strip_width(p), strips = (cols + width - 1) / width;
		const long long chunk = strip / strips;
		const int j = (int)(strip % strips) * width + lane, active = lane < width && j < cols;
		const float *basis = p->row.basis + j;
		const long long ld = p->row.ld, stride = p->stride;
		int votes = 0;
		__syncthreads(); // the previous strip may have another width
		for (int i = 0; active && i < rows; i++)
			tile[i * width + lane] = 0;
		for (int base = 0; base < rows * cols; base += BAND) {
			votes = merge(d, tensor, chunk, base, cols, &merged);
			__syncthreads();
			const int words = list_words(&merged);
			__syncthreads();
			if (active)
				expand(basis, ld, words, &merged, tile + lane, width);
			__syncthreads();
		}
		if (!active)
			continue;
		inverse(&p->column, p->secants, tile + lane, width);
		const float rate = __fmul_rn(d->rate, __fdiv_rn((float)votes, d->votes));
		update_column(rows, d->to[tensor] + place(p, chunk) + j, stride, tile + lane, width, rate, d->factor, add);
	}
}

// w ← w·factor − rate·sign(DCT⁻¹(mean of the results))
KERNEL psyche_distro_apply(decoding d) { decode(&d, 0); }

// δ ← δ + DCT⁻¹(mean of the results)
KERNEL psyche_distro_add(decoding d) { decode(&d, 1); }
