// Ports core/assign/shuffle.go for at most MAX_CLIENTS members. A member's number fits in a byte,
// and the source of a round is one hash.

#include "coordinator.h"

enum { SHUFFLE_ROUNDS = 90 };

// source is the source of a round of a shuffle. The zeros make each word that ends with a bit of the hash readable.
struct source {
	uint8_t zeros_and_hash[8 + 32];
};

// swap_pairs ports swapPairs for the positions low to high of order. A word has the source's bits for the next
// 56 pairs or more, the first in its highest bit. Eight pairs are swapped at once. Positions have 64 bits because the
// chain's machine has to truncate smaller integers repeatedly.
static void swap_pairs(uint8_t *order, uint64_t low, uint64_t high, const struct source *source) {
	uint8_t *first = order + low, *last = order + high;
	while (first < last) {
		uint64_t place = (uint64_t)(last - order), pairs = (uint64_t)(last - first + 1) / 2;
		uint64_t word = host_load(source->zeros_and_hash + place / 8 + 1) << (7 - place % 8);
		const uint8_t *end = last - (pairs < 56 ? pairs : 56);
		for (; last - end >= 8; first += 8, last -= 8, word <<= 8) {
			uint64_t swaps = ((word >> 56) * 0x8040201008040201 & 0x8080808080808080) >> 7; // one bit in each byte
			uint64_t ahead = host_load(first), behind = __builtin_bswap64(host_load(last - 7));
			uint64_t change = (ahead ^ behind) & swaps * 0xff;
			host_store(first, ahead ^ change);
			host_store(last - 7, __builtin_bswap64(behind ^ change));
		}
		for (; last > end; first++, last--, word <<= 1)
			if (word >> 63) {
				uint8_t member = *first;
				*first = *last;
				*last = member;
			}
	}
}

// shuffle_key ports shuffleKey.
static void shuffle_key(uint64_t seed, enum salt salt, uint8_t key[32]) {
	static const struct slice salts[] = {{"committee", 9}, {"witness", 7}, {"batch", 5}, {"jury", 4}};
	struct slice message = {&seed, sizeof seed};
	uint8_t inner[32];
	host_sha256(&message, 1, inner);
	struct slice outer[2] = {{inner, sizeof inner}, {salts[salt].bytes, salts[salt].size}};
	host_sha256(outer, 2, key);
}

// shuffle_pivot ports shufflePivot. The message is the key, then the round.
static uint32_t shuffle_pivot(const uint8_t message[37], uint32_t total) {
	struct slice pieces = {message, 33};
	uint64_t hash[4];
	host_sha256(&pieces, 1, (uint8_t *)hash);
	return (uint32_t)(hash[0] % total);
}

// shuffle_source ports shuffleSource for the first block. The block's number, 0, ends the message.
static void shuffle_source(const uint8_t message[37], struct source *source) {
	struct slice pieces = {message, 37};
	host_sha256(&pieces, 1, source->zeros_and_hash + 8);
}

// find_places finds the final members at some positions of a shuffle, by going backwards from each
// position round by round.
static void find_places(uint32_t total, uint32_t count, uint8_t message[37], uint8_t order[MAX_CLIENTS]) {
	struct source source;
	const uint8_t *hash = source.zeros_and_hash + 8, *end = order + count;
	for (uint32_t round = SHUFFLE_ROUNDS; round-- > 0;) {
		message[32] = (uint8_t)round;
		uint64_t pivot = shuffle_pivot(message, total);
		shuffle_source(message, &source);
		for (uint8_t *place = order; place < end; place++) {
			uint64_t index = *place, flip = pivot - index;
			if (flip > pivot) flip += total;
			uint64_t position = index > flip ? index : flip;
			if (hash[position / 8] >> position % 8 & 1) *place = (uint8_t)flip;
		}
	}
}

// assign_in_order computes the first count positions of inOrder. If they are few, it computes only
// these, which is cheaper than swapping all.
void assign_in_order(uint32_t total, uint32_t count, uint64_t seed, enum salt salt, uint8_t order[MAX_CLIENTS]) {
	uint8_t message[37];
	struct source source;
	host_zero(message, sizeof message);
	host_zero(&source, sizeof source);
	shuffle_key(seed, salt, message);
	for (uint32_t i = 0; i < total; i++) order[i] = (uint8_t)i;
	if (count <= total / 12) {
		find_places(total, count, message, order);
		return;
	}
	for (uint32_t round = 0; round < SHUFFLE_ROUNDS; round++) {
		message[32] = (uint8_t)round;
		uint32_t pivot = shuffle_pivot(message, total);
		shuffle_source(message, &source);
		swap_pairs(order, 0, pivot, &source);
		if (pivot + 1 < total) swap_pairs(order, pivot + 1, total - 1, &source);
	}
}
