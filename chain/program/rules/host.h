// The functions that the rules need from their machine: a hash, and memory moves. On the chain they
// are system calls (chain/system.c), in tests functions of this project (native.c, sha256.c).
#ifndef PSYCHE_HOST_H
#define PSYCHE_HOST_H

#include <stdbool.h>
#include <stdint.h>

// slice is one piece of a message. It has the layout of the chain's system call.
struct slice {
	const void *bytes;
	uint64_t size;
};

// host_sha256 hashes the pieces as one message.
void host_sha256(const struct slice *pieces, uint64_t count, uint8_t digest[32]);

// host_move also copies overlapping memory.
void host_move(void *to, const void *from, uint64_t size);
void host_zero(void *at, uint64_t size);
bool host_equal(const void *a, const void *b, uint64_t size);

enum { SCRATCH_PLACES = 1024 };

// host_scratch returns space for SCRATCH_PLACES numbers, too much for a stack frame on the chain.
uint16_t *host_scratch(void);

#endif
