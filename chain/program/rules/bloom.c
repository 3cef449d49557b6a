// Ports core/bloom/bloom.go, for items that are keys.

#include "coordinator.h"

// bloom_new_keys ports NewKeys.
void bloom_new_keys(struct filter_keys *k, uint64_t seed) {
	uint8_t number;
	struct slice message[2] = {{&seed, sizeof seed}, {&number, 1}};
	for (number = 0; number < FILTER_HASHES; number++) {
		uint64_t hash[4];
		host_sha256(message, 2, (uint8_t *)hash);
		k->key[number] = hash[0];
	}
}

// bloom_positions ports Keys.Positions. Like Go, it computes several hashes at once.
void bloom_positions(const struct filter_keys *k, const struct key *item, struct filter_positions *out) {
	const uint8_t *byte = (const uint8_t *)item, *end = byte + sizeof *item;
	uint64_t a = k->key[0], b = k->key[1], c = k->key[2], d = k->key[3], e = k->key[4], f = k->key[5], g = k->key[6];
	for (; byte < end; byte++) {
		uint64_t x = *byte, prime = 0x100000001b3;
		a = (a ^ x) * prime;
		b = (b ^ x) * prime;
		c = (c ^ x) * prime;
		d = (d ^ x) * prime;
		e = (e ^ x) * prime;
		f = (f ^ x) * prime;
		g = (g ^ x) * prime;
	}
	uint64_t hash[FILTER_HASHES] = {a, b, c, d, e, f, g};
	for (uint32_t i = 0; i < FILTER_HASHES; i++) out->bit[i] = (uint16_t)(hash[i] % FILTER_BITS);
}

// bloom_contains_positions ports Filter.ContainsPositions.
bool bloom_contains_positions(const struct filter *f, const struct filter_positions *positions) {
	for (uint32_t i = 0; i < FILTER_HASHES; i++)
		if (!(f->word[positions->bit[i] / 64] >> positions->bit[i] % 64 & 1)) return false;
	return true;
}

// bloom_ones_count ports Filter.OnesCount.
uint32_t bloom_ones_count(const struct filter *f) {
	uint32_t count = 0;
	for (uint32_t i = 0; i < FILTER_WORDS; i++) count += (uint32_t)__builtin_popcountll(f->word[i]);
	return count;
}

// transpose exchanges the blocks of size columns of a matrix of 32 rows of two times 32 bits.
static inline void transpose(uint64_t row[MAX_WITNESSES], uint32_t size, uint64_t mask) {
	for (uint64_t *block = row; block < row + MAX_WITNESSES; block += 2 * size)
		for (uint64_t *at = block; at < block + size; at++) {
			uint64_t change = (at[0] >> size ^ at[size]) & mask;
			at[0] ^= change << size;
			at[size] ^= change;
		}
}

// bloom_transpose_word computes which of 32 filters contain each bit of a word. row has this word of all filters, and
// is overwritten.
void bloom_transpose_word(uint32_t place, uint64_t row[MAX_WITNESSES], uint32_t owners[FILTER_BITS]) {
	uint32_t *low = owners + 64 * place;
	transpose(row, 16, 0x0000ffff0000ffff);
	transpose(row, 8, 0x00ff00ff00ff00ff);
	transpose(row, 4, 0x0f0f0f0f0f0f0f0f);
	transpose(row, 2, 0x3333333333333333);
	transpose(row, 1, 0x5555555555555555);
	for (uint32_t i = 0; i < 32; i++) {
		low[i] = (uint32_t)row[i];
		low[i + 32] = (uint32_t)(row[i] >> 32);
	}
}
