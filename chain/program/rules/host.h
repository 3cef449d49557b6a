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

enum { SCRATCH_SIZE = 10240 };

// host_scratch returns SCRATCH_SIZE bytes for 8-byte numbers, too much for a stack frame on the chain.
void *host_scratch(void);

// host_load and host_store access 8 bytes at any address. The chain's machine needs no alignment, but its compiler
// would access the bytes one by one.
#ifdef __bpf__
static inline uint64_t host_load(const uint8_t *at) {
	uint64_t word;
	__asm__ volatile("%0 = *(u64 *)(%1 + 0)" : "=r"(word) : "r"(at) : "memory");
	return word;
}
static inline void host_store(uint8_t *at, uint64_t word) { __asm__ volatile("*(u64 *)(%0 + 0) = %1" : : "r"(at), "r"(word) : "memory"); }
#else
static inline uint64_t host_load(const uint8_t *at) {
	uint64_t word;
	__builtin_memcpy(&word, at, sizeof word);
	return word;
}
static inline void host_store(uint8_t *at, uint64_t word) { __builtin_memcpy(at, &word, sizeof word); }
#endif

#endif
