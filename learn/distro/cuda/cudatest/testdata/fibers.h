// Runs the threads of a block as fibers on one thread of the operating system.

#ifndef PSYCHE_EMULATED_FIBERS_H
#define PSYCHE_EMULATED_FIBERS_H

#include <stddef.h>
#include <stdint.h>

// The name of the section with the shared memory of all kernels.
#define FIBER_SHARED "psyche_shared"

typedef struct {
	unsigned x, y, z;
} fiber_index;

// The index of the present thread and block, and the number of blocks. They do not change while a
// thread runs.
fiber_index fiber_thread(void) __attribute__((const));
fiber_index fiber_block(void) __attribute__((const));
fiber_index fiber_blocks(void) __attribute__((const));

extern char fiber_dynamic[];

// A kernel, and how to start one of its threads.
typedef struct {
	const char *name;
	void (*start)(const void *arguments);
	size_t size;      // of the arguments
	unsigned threads; // of a block; 0 means kernel_threads
} fiber_kernel;

// fiber_launch runs a kernel. It returns NULL, or a message about an error of the kernel.
const char *fiber_launch(const fiber_kernel *kernel, const void *arguments, unsigned blocks, unsigned threads, size_t dynamic);

// fiber_dynamic_limit is the largest dynamic shared memory of a block, in bytes.
#define FIBER_DYNAMIC_LIMIT (1 << 18)

void fiber_barrier(const char *site);
unsigned fiber_ballot(const char *site, unsigned mask, int predicate);

enum { FIBER_INDEX, FIBER_UP, FIBER_XOR };
unsigned fiber_shuffle(const char *site, unsigned mask, unsigned value, int kind, int of);

unsigned fiber_atomic_add(unsigned *at, unsigned value);
long long fiber_atomic_min(long long *at, long long value);

#endif
