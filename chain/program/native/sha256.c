// SHA-256 of FIPS 180-4, for use without the chain's system call.

#include "host.h"

#include <stddef.h>

enum { BLOCK = 64 };

static const uint32_t constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotated(uint32_t x, uint32_t n) { return x >> n | x << (32 - n); }

// compress adds a block to the hash.
static void compress(uint32_t hash[8], const uint8_t block[BLOCK]) {
	uint32_t w[64], v[8];
	for (uint32_t i = 0; i < 16; i++, block += 4)
		w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
	for (uint32_t i = 16; i < 64; i++) {
		uint32_t a = w[i - 15], b = w[i - 2];
		w[i] = w[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + w[i - 7] + (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
	}
	host_move(v, hash, sizeof v);
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]), majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
		uint32_t a = v[7] + (rotated(v[4], 6) ^ rotated(v[4], 11) ^ rotated(v[4], 25)) + choice + constants[i] + w[i];
		uint32_t b = (rotated(v[0], 2) ^ rotated(v[0], 13) ^ rotated(v[0], 22)) + majority;
		for (uint32_t k = 7; k > 0; k--) v[k] = v[k - 1];
		v[4] += a;
		v[0] = a + b;
	}
	for (uint32_t i = 0; i < 8; i++) hash[i] += v[i];
}

void host_sha256(const struct slice *pieces, uint64_t count, uint8_t digest[32]) {
	uint32_t hash[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
	uint8_t block[BLOCK];
	uint64_t filled = 0, size = 0;
	for (uint64_t p = 0; p < count; p++) {
		const uint8_t *bytes = pieces[p].bytes;
		size += pieces[p].size;
		for (uint64_t i = 0; i < pieces[p].size; i++) {
			block[filled++] = bytes[i];
			if (filled < BLOCK) continue;
			compress(hash, block);
			filled = 0;
		}
	}
	block[filled++] = 0x80;
	if (filled > BLOCK - 8) {
		host_zero(block + filled, BLOCK - filled);
		compress(hash, block);
		filled = 0;
	}
	host_zero(block + filled, BLOCK - filled);
	for (uint32_t i = 0; i < 8; i++) block[BLOCK - 1 - i] = (uint8_t)(size * 8 >> 8 * i);
	compress(hash, block);
	for (uint32_t i = 0; i < 32; i++) digest[i] = (uint8_t)(hash[i / 4] >> (24 - 8 * (i % 4)));
}
