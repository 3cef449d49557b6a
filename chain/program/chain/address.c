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
