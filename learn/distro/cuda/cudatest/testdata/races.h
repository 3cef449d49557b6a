// Finds races and reads of uninitialised shared memory.

#ifndef PSYCHE_EMULATED_RACES_H
#define PSYCHE_EMULATED_RACES_H

#include <stddef.h>

// Memory of which accesses are not checked.
void races_ignore(const char *at, size_t size);
// Shared memory: up to two regions.
void races_shared(const char *at, size_t size);

// A launch, a block, or the part of a block after a barrier begins.
void races_launch(void);
void races_block(void);
void races_barrier(void);

// An atomic operation reads and writes memory.
void races_atomic(const void *at, size_t size);

// fiber_fail ends the launch with a message.
void fiber_fail(const char *what, const char *site) __attribute__((noreturn));

#endif
