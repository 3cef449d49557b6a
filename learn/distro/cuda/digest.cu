// Kernels that hash and copy chunks.

typedef struct {
	model m; // of chunks
	const float *const *tensors;
	unsigned *digests; // 8 words for each chunk
} digesting;

typedef struct {
	model m; // of chunks
	const float *const *tensors;
	const long long *numbers, *starts; // of each copied chunk: its number, and its place in to
	long long count;
	float *to;
} gathering;

typedef char digesting_is_40_bytes[sizeof(digesting) == 40 ? 1 : -1];
typedef char gathering_is_64_bytes[sizeof(gathering) == 64 ? 1 : -1];

// SHA-256: FIPS 180-4.
__constant__ unsigned sha_constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

INLINE unsigned rotate(unsigned x, int n) { return x >> n | x << (32 - n); }

INLINE unsigned reverse(unsigned x) { return (x & 0xffu) << 24 | (x & 0xff00u) << 8 | (x >> 8 & 0xff00u) | x >> 24; }

// compress adds a block of 16 words to the state of a hash. It overwrites the block.
INLINE void compress(unsigned state[8], unsigned w[16]) {
	unsigned a = state[0], b = state[1], c = state[2], d = state[3];
	unsigned e = state[4], f = state[5], g = state[6], h = state[7];
	UNROLL for (int i = 0; i < 64; i++) {
		if (i >= 16) {
			const unsigned p = w[(i + 1) & 15], q = w[(i + 14) & 15];
			w[i & 15] += (rotate(p, 7) ^ rotate(p, 18) ^ p >> 3) + w[(i + 9) & 15] + (rotate(q, 17) ^ rotate(q, 19) ^ q >> 10);
		}
		const unsigned s = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + sha_constants[i] + w[i & 15];
		const unsigned t = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
		h = g, g = f, f = e, e = d + s, d = c, c = b, b = a, a = s + t;
	}
	state[0] += a, state[1] += b, state[2] += c, state[3] += d;
	state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

// hash_chunk writes the SHA-256 of a chunk's values, row by row, little-endian: audit.Digest.
INLINE void hash_chunk(const plan *p, const float *row, unsigned *digest) {
	unsigned state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
	unsigned w[16];
	const int size = p->column.n * p->row.n;
	int column = 0;
	// After the values: one bit, zeros, and in the last two words the number of bits.
	for (int at = 0; at < size + 3; at += 16) {
		UNROLL for (int n = 0; n < 16; n++) {
			if (column == p->row.n) {
				column = 0;
				row += p->stride;
			}
			if (at + n < size)
				w[n] = reverse(__float_as_uint(row[column++]));
			else
				w[n] = at + n == size ? 0x80000000u : 0;
		}
		if (at + 16 >= size + 3)
			w[15] = (unsigned)size * 32;
		compress(state, w);
	}
	UNROLL for (int n = 0; n < 8; n++) digest[n] = reverse(state[n]);
}

// The digests of all chunks. One thread hashes a chunk.
KERNEL psyche_distro_digest(digesting d) {
	for (long long number = blockIdx.x * THREADS + threadIdx.x; number < d.m.firsts[d.m.tensors]; number += gridDim.x * THREADS) {
		const long long tensor = tensor_of(&d.m, number);
		const plan *p = &d.m.plans[tensor];
		hash_chunk(p, d.tensors[tensor] + place(p, number - d.m.firsts[tensor]), d.digests + 8 * number);
	}
}

// Copies chunks, row by row.
KERNEL psyche_distro_gather(gathering g) {
	for (long long work = blockIdx.x; work < g.count; work += gridDim.x) {
		const long long number = g.numbers[work], tensor = tensor_of(&g.m, number);
		const plan *p = &g.m.plans[tensor];
		const float *from = g.tensors[tensor] + place(p, number - g.m.firsts[tensor]);
		float *to = g.to + g.starts[work];
		for (int i = threadIdx.x; i < p->column.n * p->row.n; i += THREADS)
			to[i] = from[i / p->row.n * p->stride + i % p->row.n];
	}
}
