// The host functions that the rules need, on the chain.

#include "system.h"
#include "host.h"

void host_sha256(const struct slice *pieces, uint64_t count, uint8_t digest[32]) { sol_sha256(pieces, count, digest); }

void host_move(void *to, const void *from, uint64_t size) {
	if (size > 0) sol_memmove_(to, from, size);
}

void host_zero(void *at, uint64_t size) {
	if (size > 0) sol_memset_(at, 0, size);
}

bool host_equal(const void *a, const void *b, uint64_t size) {
	int32_t result = 0;
	if (size > 0) sol_memcmp_(a, b, size, &result);
	return result == 0;
}

// host_scratch returns the beginning of the heap. Nothing else uses the heap.
void *host_scratch(void) { return (void *)0x300000000; }
