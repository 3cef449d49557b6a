// Addresses that a client can compute itself.

#include "program.h"

// is_address_with_seed reports whether the chain's system program derives the address from the
// base, the seed and the owner. Only the base's key can create an account at such an address.
bool is_address_with_seed(const struct key *address, const struct key *base, const uint8_t *seed, uint64_t size, const struct key *owner) {
	struct slice message[3] = {{base, sizeof *base}, {seed, size}, {owner, sizeof *owner}};
	struct key made;
	host_sha256(message, 3, (uint8_t *)&made);
	return key_equal(&made, address);
}

// is_address_with_seed_of is is_address_with_seed with a seed that stands for a key: half of the
// key's SHA-256, in hexadecimal.
bool is_address_with_seed_of(const struct key *address, const struct key *base, const struct key *of, const struct key *owner) {
	static const uint8_t digits[16] = "0123456789abcdef";
	struct slice message = {of, sizeof *of};
	uint8_t digest[32], seed[32];
	host_sha256(&message, 1, digest);
	for (uint32_t i = 0; i < sizeof seed; i++) seed[i] = digits[i % 2 ? digest[i / 2] & 15 : digest[i / 2] >> 4];
	return is_address_with_seed(address, base, seed, sizeof seed, owner);
}
