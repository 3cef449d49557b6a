// The kernels for one instruction set. kernel.c includes this file once for each, with
//   LANES    floats of a vector, 4, 8 or 16
//   NAME(x)  the name of x for this instruction set
//   TARGET   the function attribute that allows its instructions
// A lane is a column (or, transposed, a row) of the chunk. Lanes are never added to each other, so
// their number does not change a result. There is deliberately no include guard.

typedef float NAME(V) __attribute__((vector_size(LANES * 4), may_alias));
typedef float NAME(U) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t NAME(I) __attribute__((vector_size(LANES * 4), may_alias));
typedef double NAME(D) __attribute__((vector_size(LANES * 4), may_alias));
typedef float NAME(W) __attribute__((vector_size(LANES * 2), aligned(4), may_alias));
#define D NAME(D)
#define W NAME(W)
#define V NAME(V)
#define U NAME(U)
#define I NAME(I)

#define LOAD(p) (*(const V *)(p))
#define STORE(p, v) (*(V *)(p) = (v))

#if LANES == 4
#define MAX(a, b) (((a) & ((a) > (b))) | ((b) & ~((a) > (b))))
#define BITS_ABOVE(a, limit) ((unsigned)_mm_movemask_ps((__m128)((a) > (limit))))
#elif LANES == 8
#define MAX(a, b) ((I)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#define BITS_ABOVE(a, limit) ((unsigned)_mm256_movemask_ps((__m256)((a) > (limit))))
#else
#define MAX(a, b) ((I)_mm512_max_epi32((__m512i)(a), (__m512i)(b)))
#define BITS_ABOVE(a, limit) ((unsigned)_mm512_cmpgt_epi32_mask((__m512i)(a), (__m512i)(limit)))
#endif

#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (I){__VA_ARGS__})
#endif

// Lee's recursion on N vectors in x, with N vectors in t as scratch: leeForward and leeInverse of
// transform.go. SUB is the name of the function for N/2 vectors.
INLINE void NAME(forward_1)(V *x, V *t, const float *secants) { (void)x, (void)t, (void)secants; }
INLINE void NAME(inverse_1)(V *x, V *t, const float *secants) { (void)x, (void)t, (void)secants; }

#define UNROLL _Pragma("GCC unroll 16")

#define LEE(N, H, SUB) \
	INLINE void NAME(forward_##N)(V *restrict x, V *restrict t, const float *secants) { \
		UNROLL for (int i = 0; i < H; i++) { \
			V a = x[i], b = x[N - 1 - i]; \
			t[i] = a + b; \
			t[H + i] = (a - b) * secants[H + i]; \
		} \
		NAME(forward_##SUB)(t, x, secants); \
		NAME(forward_##SUB)(t + H, x + H, secants); \
		UNROLL for (int i = 0; i < H - 1; i++) { \
			x[2 * i] = t[i]; \
			x[2 * i + 1] = t[H + i] + t[H + i + 1]; \
		} \
		x[N - 2] = t[H - 1]; \
		x[N - 1] = t[N - 1]; \
	} \
	INLINE void NAME(inverse_##N)(V *restrict x, V *restrict t, const float *secants) { \
		t[0] = x[0]; \
		t[H] = x[1]; \
		UNROLL for (int i = 1; i < H; i++) { \
			t[i] = x[2 * i]; \
			t[H + i] = x[2 * i - 1] + x[2 * i + 1]; \
		} \
		NAME(inverse_##SUB)(t, x, secants); \
		NAME(inverse_##SUB)(t + H, x + H, secants); \
		UNROLL for (int i = 0; i < H; i++) { \
			V a = t[i], b = t[H + i] * secants[H + i]; \
			x[i] = a + b; \
			x[N - 1 - i] = a - b; \
		} \
	}

// HELD makes the functions for halves that are small enough for the registers. The recursion runs
// on local arrays, which the compiler keeps in registers.
#define HELD(N) \
	INLINE void NAME(forward_held_##N)(V *x, V *unused, const float *secants) { \
		V a[N], t[N]; \
		(void)unused; \
		UNROLL for (int i = 0; i < N; i++) a[i] = x[i]; \
		NAME(forward_##N)(a, t, secants); \
		UNROLL for (int i = 0; i < N; i++) x[i] = a[i]; \
	} \
	INLINE void NAME(inverse_held_##N)(V *x, V *unused, const float *secants) { \
		V a[N], t[N]; \
		(void)unused; \
		UNROLL for (int i = 0; i < N; i++) a[i] = x[i]; \
		NAME(inverse_##N)(a, t, secants); \
		UNROLL for (int i = 0; i < N; i++) x[i] = a[i]; \
	}

// STRIDED makes the functions for one strip of a chunk: N vectors that are ld floats apart,
// including their scaling. This is the outermost step of the recursion.
#define STRIDED(N, H, SUB) \
	static TARGET void NAME(forward_strided_##N)(const psyche_distro_axis *axis, const float *secants, float *rows, int ld) { \
		V x[N], t[N]; \
		const float mean = axis->mean, scale = axis->scale; \
		for (int i = 0; i < H; i++) { \
			V a = LOAD(rows + i * ld), b = LOAD(rows + (N - 1 - i) * ld); \
			t[i] = a + b; \
			t[H + i] = (a - b) * secants[H + i]; \
		} \
		NAME(forward_##SUB)(t, x, secants); \
		NAME(forward_##SUB)(t + H, x + H, secants); \
		STORE(rows, t[0] * mean); \
		for (int i = 1; i < H; i++) \
			STORE(rows + 2 * i * ld, t[i] * scale); \
		for (int i = 0; i < H - 1; i++) \
			STORE(rows + (2 * i + 1) * ld, (t[H + i] + t[H + i + 1]) * scale); \
		STORE(rows + (N - 1) * ld, t[N - 1] * scale); \
	} \
	static TARGET void NAME(inverse_strided_##N)(const psyche_distro_axis *axis, const float *secants, float *rows, int ld) { \
		V x[N], t[N]; \
		const float mean = axis->mean, scale = axis->scale; \
		t[0] = LOAD(rows) * mean; \
		V odd = t[H] = LOAD(rows + ld) * scale; \
		for (int i = 1; i < H; i++) { \
			V next = LOAD(rows + (2 * i + 1) * ld) * scale; \
			t[i] = LOAD(rows + 2 * i * ld) * scale; \
			t[H + i] = odd + next; \
			odd = next; \
		} \
		NAME(inverse_##SUB)(t, x, secants); \
		NAME(inverse_##SUB)(t + H, x + H, secants); \
		for (int i = 0; i < H; i++) { \
			V a = t[i], b = t[H + i] * secants[H + i]; \
			STORE(rows + i * ld, a + b); \
			STORE(rows + (N - 1 - i) * ld, a - b); \
		} \
	}

LEE(2, 1, 1)
LEE(4, 2, 2)
LEE(8, 4, 4)
#if LANES == 16
LEE(16, 8, 8)
HELD(16)
LEE(32, 16, held_16)
#define HALF_OF_32 held_16
#else
HELD(8)
LEE(16, 8, held_8)
LEE(32, 16, 16)
#define HALF_OF_32 16
#endif
LEE(64, 32, 32)
STRIDED(2, 1, 1)
STRIDED(4, 2, 2)
STRIDED(8, 4, 4)
STRIDED(16, 8, 8)
#define EXPANDED(n, h, sub) STRIDED(n, h, sub)
EXPANDED(32, 16, HALF_OF_32)
STRIDED(64, 32, 32)
STRIDED(128, 64, 64)

// lee transforms one strip of 2, 4 … 128 rows. The transform of one point is the point itself.
static TARGET void NAME(lee)(const psyche_distro_axis *axis, const float *secants, float *rows, int ld, int inverse) {
	switch (axis->n) {
#define CASE(N) \
	case N: \
		if (inverse) \
			NAME(inverse_strided_##N)(axis, secants, rows, ld); \
		else \
			NAME(forward_strided_##N)(axis, secants, rows, ld); \
		break;
		CASE(2) CASE(4) CASE(8) CASE(16) CASE(32) CASE(64) CASE(128)
#undef CASE
	}
}

// dense transforms one strip by the matrix with element (k, i) at matrix[k·down + i·right], adding
// in ascending order of i, four rows at a time.
static TARGET void NAME(dense)(int n, const float *matrix, int down, int right, float *rows, int ld) {
	V x[MAX_CHUNK];
	int k = 0;
	for (int i = 0; i < n; i++)
		x[i] = LOAD(rows + i * ld);
	for (; k + 4 <= n; k += 4) {
		const float *m = matrix + k * down;
		V a = {0}, b = {0}, c = {0}, d = {0};
		for (int i = 0; i < n; i++) {
			a += x[i] * m[i * right];
			b += x[i] * m[down + i * right];
			c += x[i] * m[2 * down + i * right];
			d += x[i] * m[3 * down + i * right];
		}
		STORE(rows + k * ld, a);
		STORE(rows + (k + 1) * ld, b);
		STORE(rows + (k + 2) * ld, c);
		STORE(rows + (k + 3) * ld, d);
	}
	for (; k < n; k++) {
		V a = {0};
		for (int i = 0; i < n; i++)
			a += x[i] * matrix[k * down + i * right];
		STORE(rows + k * ld, a);
	}
}

// transform replaces the columns of axis->n rows of width floats (a multiple of PADDING).
static TARGET void NAME(transform)(const psyche_distro_axis *axis, const float *secants, float *rows, int width, int inverse, ahead *next) {
	const int ld = padded(axis->n);
	for (int s = 0; s < width; s += LANES) {
		fetch(next, LANES);
		if (axis->lee)
			NAME(lee)(axis, secants, rows + s, width, inverse);
		else
			NAME(dense)(axis->n, axis->basis, inverse ? 1 : ld, inverse ? ld : 1, rows + s, width);
	}
}

// turn writes the transpose of a rows × cols matrix, both multiples of PADDING.
static TARGET void NAME(turn)(const float *from, int rows, int cols, float *to, ahead *next) {
	for (int r = 0; r < rows; r += LANES) {
		fetch(next, LANES);
		for (int c = 0; c < cols; c += LANES) {
			V a[LANES], b[LANES];
			for (int i = 0; i < LANES; i++)
				a[i] = LOAD(from + (r + i) * cols + c);
#if LANES == 4
			for (int i = 0; i < 4; i += 2) {
				b[i] = SHUFFLE(a[i], a[i + 1], 0, 4, 1, 5);
				b[i + 1] = SHUFFLE(a[i], a[i + 1], 2, 6, 3, 7);
			}
			a[0] = SHUFFLE(b[0], b[2], 0, 1, 4, 5);
			a[1] = SHUFFLE(b[0], b[2], 2, 3, 6, 7);
			a[2] = SHUFFLE(b[1], b[3], 0, 1, 4, 5);
			a[3] = SHUFFLE(b[1], b[3], 2, 3, 6, 7);
			for (int i = 0; i < LANES; i++)
				STORE(to + (c + i) * rows + r, a[i]);
#elif LANES == 8
			for (int i = 0; i < 8; i += 2) {
				b[i] = SHUFFLE(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
				b[i + 1] = SHUFFLE(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
			}
			for (int i = 0; i < 8; i += 4) {
				a[i] = SHUFFLE(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
				a[i + 1] = SHUFFLE(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
				a[i + 2] = SHUFFLE(b[i + 1], b[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
				a[i + 3] = SHUFFLE(b[i + 1], b[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
			}
			for (int i = 0; i < 4; i++) {
				b[i] = SHUFFLE(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
				b[i + 4] = SHUFFLE(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
			}
			for (int i = 0; i < LANES; i++)
				STORE(to + (c + i) * rows + r, b[i]);
#else
			for (int i = 0; i < 16; i += 2) {
				b[i] = SHUFFLE(a[i], a[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
				b[i + 1] = SHUFFLE(a[i], a[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
			}
			for (int i = 0; i < 16; i += 4) {
				a[i] = SHUFFLE(b[i], b[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
				a[i + 1] = SHUFFLE(b[i], b[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
				a[i + 2] = SHUFFLE(b[i + 1], b[i + 3], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
				a[i + 3] = SHUFFLE(b[i + 1], b[i + 3], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
			}
			for (int g = 0; g < 16; g += 8)
				for (int i = g; i < g + 4; i++) {
					b[i] = SHUFFLE(a[i], a[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
					b[i + 4] = SHUFFLE(a[i], a[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
				}
			for (int i = 0; i < 8; i++) {
				a[i] = SHUFFLE(b[i], b[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
				a[i + 8] = SHUFFLE(b[i], b[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
			}
			for (int i = 0; i < LANES; i++)
				STORE(to + (c + i) * rows + r, a[i]);
#endif
		}
	}
}

// select_few selects k ≤ FEW coefficients. The k-th largest of the maxima of disjoint parts is a
// lower bound for the k-th largest magnitude, so one more pass finds few candidates. It begins with
// MAXIMA parts and joins parts as long as at least twice k remain. Fewer parts give slightly more
// candidates.
static TARGET int NAME(select_few)(const psyche_distro_plan *p, I *maxima, const float *turned, int k, uint16_t *indices, float *values) {
	const int rows = p->column.n, cols = p->row.n, ld = padded(rows);
	const int32_t *lanes = (const int32_t *)maxima;
	uint64_t keys[FEW];
	int count = 0, parts = MAXIMA;
	for (; parts > LANES && parts >= 4 * k; parts /= 2)
		for (int i = 0; i < parts / 2 / LANES; i++)
			maxima[i] = MAX(maxima[i], maxima[i + parts / 2 / LANES]);
	for (int i = 0; i < parts; i++)
		count = insert(keys, count, k, (uint32_t)lanes[i]);
	const int32_t bound = keys[k - 1] > 0 ? (int32_t)keys[k - 1] - 1 : 0;
	const I limit = (I){0} + bound;
	const int total = cols * ld;
	count = 0;
	for (int at = 0; at < total; at += 64) {
		uint64_t set = 0;
		for (int s = 0; s < 64 && at + s < total; s += LANES)
			set |= (uint64_t)BITS_ABOVE(*(const I *)(turned + at + s) & 0x7fffffff, limit) << s;
		for (; set; set &= set - 1) {
			int i = at + __builtin_ctzll(set);
			uint64_t key = (uint64_t)magnitude(turned[i]) << 16 | (uint16_t)~(i % ld * cols + i / ld);
			count = insert(keys, count, k, key);
		}
	}
	for (int i = 0; i < count; i++) {
		uint16_t index = (uint16_t)~keys[i];
		int at = i;
		for (; at > 0 && indices[at - 1] > index; at--)
			indices[at] = indices[at - 1];
		indices[at] = index;
	}
	for (int i = 0; i < count; i++)
		values[i] = turned[indices[i] % cols * ld + indices[i] / cols];
	return count;
}

// count_above returns the number of coefficients, of total, with a magnitude above a limit.
INLINE int NAME(count_above)(const float *turned, int total, int32_t limit) {
	const I bound = (I){0} + limit;
	I counts = {0};
	int count = 0;
	for (int i = 0; i < total; i += LANES)
		counts -= (*(const I *)(turned + i) & 0x7fffffff) > bound;
	for (int lane = 0; lane < LANES; lane++)
		count += counts[lane];
	return count;
}

// select_many selects coefficients for any k: all above a threshold, and among those equal to it the
// lowest indices. It never selects zeros. Bisection finds the threshold, the k-th largest magnitude.
// It can end early, with a lower threshold, if exactly k magnitudes reach that.
static TARGET int NAME(select_many)(const psyche_distro_plan *p, const float *turned, int32_t largest, int k, uint16_t *indices, float *values) {
	const int rows = p->column.n, cols = p->row.n, ld = padded(rows);
	int32_t threshold = 0, high = largest; // fewer than k magnitudes are above high
	int equal = k;                         // maximum number of selected coefficients equal to the threshold
	while (threshold < high) {
		int32_t middle = high - (high - threshold) / 2; // above the threshold
		int count = NAME(count_above)(turned, cols * ld, middle - 1);
		if (count >= k)
			threshold = middle;
		else
			high = middle - 1, equal = k - count;
		if (count == k)
			break;
	}
	const I limit = (I){0} + (threshold > 0 ? threshold - 1 : 0);
	uint64_t set[MAX_CHUNK][MAX_CHUNK / 64]; // a bit for each coefficient, in order of index
	memset(set, 0, rows * sizeof *set);
	for (int d = 0; d < cols; d++)
		for (int b = 0; b < ld; b += LANES)
			for (unsigned above = BITS_ABOVE(*(const I *)(turned + d * ld + b) & 0x7fffffff, limit); above; above &= above - 1)
				set[b + __builtin_ctz(above)][d / 64] |= (uint64_t)1 << d % 64;
	int count = 0;
	for (int b = 0; b < rows; b++)
		for (int w = 0; w < MAX_CHUNK / 64; w++)
			for (uint64_t row = set[b][w]; row; row &= row - 1) {
				int d = w * 64 + __builtin_ctzll(row);
				float v = turned[d * ld + b];
				if (magnitude(v) == (uint32_t)threshold && equal-- <= 0)
					continue;
				indices[count] = (uint16_t)(b * cols + d);
				values[count++] = v;
			}
	return count;
}

// select_top returns the number of selected coefficients, or −1 if a coefficient is not finite.
static TARGET int NAME(select_top)(const psyche_distro_plan *p, const scratch *s, int k, uint16_t *indices, float *values) {
	enum { PARTS = MAXIMA / LANES };
	const int total = p->row.n * padded(p->column.n) / LANES;
	const I *c = (const I *)s->turned;
	I maxima[PARTS];
	for (int i = 0; i < PARTS; i++)
		maxima[i] = (I){0};
	int i = 0;
	for (; i + PARTS <= total; i += PARTS)
		UNROLL for (int j = 0; j < PARTS; j++)
			maxima[j] = MAX(maxima[j], c[i + j] & 0x7fffffff);
	for (; i < total; i++)
		maxima[i % PARTS] = MAX(maxima[i % PARTS], c[i] & 0x7fffffff);
	I bad = {0};
	for (int j = 0; j < PARTS; j++)
		bad |= maxima[j] > 0x7f7fffff;
	for (int lane = 0; lane < LANES; lane++)
		if (bad[lane])
			return -1;
	if (k > FEW) {
		int32_t largest = 0;
		for (int j = 0; j < PARTS; j++)
			for (int lane = 0; lane < LANES; lane++)
				largest = maxima[j][lane] > largest ? maxima[j][lane] : largest;
		return NAME(select_many)(p, s->turned, largest, k, indices, values);
	}
	return NAME(select_few)(p, maxima, s->turned, k, indices, values);
}

// invert writes the inverse transform of the entries to s->rows.
static TARGET void NAME(invert)(const psyche_distro_plan *p, const scratch *s, int count, const uint16_t *indices, const float *values, ahead *next) {
	const int cols = p->row.n, width = padded(cols);
	memset(s->rows, 0, sizeof(float) * p->column.n * width);
	for (int e = 0; e < count; e++) {
		float *row = s->rows + indices[e] / cols * width;
		const float *basis = p->row.basis + indices[e] % cols * width;
		for (int j = 0; j < width; j += LANES)
			STORE(row + j, LOAD(row + j) + *(const U *)(basis + j) * values[e]);
	}
	NAME(transform)(&p->column, p->secants, s->rows, width, 1, next);
}

static inline int64_t NAME(place)(const psyche_distro_plan *p, int64_t chunk) {
	return chunk / p->blocks * p->column.n * p->stride + chunk % p->blocks * p->row.n;
}

static TARGET int64_t NAME(encode)(const psyche_distro_plan *p, int64_t first, int64_t last,
	const float *delta, float *left, const float *grad, float decay, float lr, float floor,
	int k, uint16_t *counts, uint16_t *indices, float *values) {
	const scratch s = carve(p);
	const int rows = p->column.n, cols = p->row.n, width = padded(cols);
	for (int64_t c = first; c < last; c++) {
		const float *d = delta + NAME(place)(p, c);
		float *l = left + NAME(place)(p, c);
		const float *g = grad + NAME(place)(p, c);
		ahead next = {0};
		if (c + 1 < last)
			next = (ahead){delta + NAME(place)(p, c + 1), grad + NAME(place)(p, c + 1), p->stride, rows, cols};
		for (int i = 0; i < rows; i++) {
			int j = 0;
			for (; j + LANES <= cols; j += LANES) {
				V x = *(const U *)(d + i * p->stride + j) * decay + *(const U *)(g + i * p->stride + j) * lr;
				x = (V)((I)x & (((I)x & 0x7fffffff) >= LEAST));
				STORE(s.chunk + i * width + j, x);
				STORE(s.rows + i * width + j, x);
			}
			for (; j < cols; j++) {
				float x = flush(d[i * p->stride + j] * decay + g[i * p->stride + j] * lr);
				s.chunk[i * width + j] = s.rows[i * width + j] = x;
			}
			for (; j < width; j++)
				s.rows[i * width + j] = 0;
		}
		NAME(transform)(&p->column, p->secants, s.rows, width, 0, &next);
		NAME(turn)(s.rows, padded(rows), width, s.turned, &next);
		NAME(transform)(&p->row, p->secants, s.turned, padded(rows), 0, &next);
		int count = NAME(select_top)(p, &s, k, indices + c * k, values + c * k);
		if (count < 0)
			return c;
		if (below_floor(count, indices + c * k, values + c * k, floor))
			count = 0;
		counts[c] = (uint16_t)count;
		NAME(invert)(p, &s, count, indices + c * k, values + c * k, &next);
		for (int i = 0; i < rows; i++) {
			int j = 0;
			for (; j + LANES <= cols; j += LANES)
				*(U *)(l + i * p->stride + j) = LOAD(s.chunk + i * width + j) - LOAD(s.rows + i * width + j);
			for (; j < cols; j++)
				l[i * p->stride + j] = s.chunk[i * width + j] - s.rows[i * width + j];
		}
	}
	return -1;
}

// squares adds v². Element i goes to the sum i % PADDING. In double precision each square is exact.
static TARGET double NAME(squares)(const float *v, int64_t n) {
	enum { HALF = LANES / 2, SUMS = PADDING / HALF };
	D sums[SUMS];
	double each[PADDING], sum = 0;
	UNROLL for (int j = 0; j < SUMS; j++)
		sums[j] = (D){0};
	int64_t i = 0;
	for (; i + PADDING <= n; i += PADDING)
		UNROLL for (int j = 0; j < SUMS; j++) {
			D x = __builtin_convertvector(*(const W *)(v + i + j * HALF), D);
			sums[j] += x * x;
		}
	memcpy(each, sums, sizeof each);
	for (int j = 0; i < n; i++, j++)
		each[j] += (double)v[i] * v[i];
	for (int j = 0; j < PADDING; j++)
		sum += each[j];
	return sum;
}

static TARGET void NAME(apply)(const psyche_distro_plan *p, int64_t first, int64_t last,
	const int32_t *offsets, const uint16_t *indices, const float *values,
	float *weights, const float *rates, float factor) {
	const scratch s = carve(p);
	const int rows = p->column.n, cols = p->row.n, width = padded(cols);
	const V zero = {0};
	for (int64_t c = first; c < last; c++) {
		const int32_t from = offsets[c - first], to = offsets[c - first + 1];
		const float rate = rates[c - first];
		const V step = (V){0} + rate;
		float *w = weights + NAME(place)(p, c);
		for (int i = 0; i < rows; i++)
			for (int j = 0; j < cols; j += PADDING)
				__builtin_prefetch(w + i * p->stride + j, 1);
		NAME(invert)(p, &s, to - from, indices + from, values + from, &(ahead){0});
		for (int i = 0; i < rows; i++) {
			const float *u = s.rows + i * width;
			float *row = w + i * p->stride;
			int j = 0;
			for (; j + LANES <= cols; j += LANES) {
				V x = LOAD(u + j);
				I move = ((I)step & (I)(x > zero)) | ((I)-step & (I)(x < zero));
				*(U *)(row + j) = *(const U *)(row + j) * factor - (V)move;
			}
			for (; j < cols; j++)
				row[j] = row[j] * factor - (u[j] > 0 ? rate : u[j] < 0 ? -rate : 0.0f);
		}
	}
}

static TARGET void NAME(add)(const psyche_distro_plan *p, int64_t first, int64_t last,
	const int32_t *offsets, const uint16_t *indices, const float *values, float *delta) {
	const scratch s = carve(p);
	const int rows = p->column.n, cols = p->row.n, width = padded(cols);
	for (int64_t c = first; c < last; c++) {
		const int32_t from = offsets[c - first], to = offsets[c - first + 1];
		float *d = delta + NAME(place)(p, c);
		NAME(invert)(p, &s, to - from, indices + from, values + from, &(ahead){0});
		for (int i = 0; i < rows; i++)
			for (int j = 0; j < cols; j++)
				d[i * p->stride + j] += s.rows[i * width + j];
	}
}

#undef D
#undef W
#undef V
#undef U
#undef I
#undef LOAD
#undef STORE
#undef MAX
#undef BITS_ABOVE
#undef SHUFFLE
#undef UNROLL
#undef LEE
#undef HELD
#undef STRIDED
#undef EXPANDED
#undef HALF_OF_32
