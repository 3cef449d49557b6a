// Addresses that others can work out.

#include "program.h"

// is_address_with_seed reports whether an address is the one that the chain's system program
// makes of a base, a seed and an owner. Only the base's key creates an account there.
bool is_address_with_seed(const struct key *address, const struct key *base, const uint8_t *seed, uint64_t size, const struct key *owner) {
	struct slice message[3] = {{base, sizeof *base}, {seed, size}, {owner, sizeof *owner}};
	struct key made;
	host_sha256(message, 3, (uint8_t *)&made);
	return key_equal(&made, address);
}
