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

// bloom_positions ports Keys.Positions.
void bloom_positions(const struct filter_keys *k, const struct key *item, struct filter_positions *out) {
	for (uint32_t i = 0; i < FILTER_HASHES; i++) {
		uint64_t hash = k->key[i];
		for (uint32_t w = 0; w < 4; w++)
			for (uint32_t shift = 0; shift < 64; shift += 8) hash = (hash ^ (item->word[w] >> shift & 0xff)) * 0x100000001b3;
		out->bit[i] = (uint16_t)(hash % FILTER_BITS);
	}
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
