// The compiler instruments each access of the kernels as for its thread sanitizer, but calls the
// functions below. They keep the last access of each four bytes, and separately of each two bytes for
// accesses of this size. Two accesses of different threads
// with no barrier between them, or of different blocks in one launch, are a race if one writes, unless
// both are atomic. A read of shared memory that its block has not written is an error too. Accesses
// of single bytes are not checked.

#include "races.h"
#include "fibers.h"

#include <stdio.h>
#include <stdlib.h>

enum { CELLS = 1 << 10, CACHE = 1 << 14 };
enum { WRITES = 1, ATOMIC = 2, SEVERAL = 4, BLOCK_WROTE = 8 };

typedef struct {
	unsigned epoch; // between two barriers; 0: never accessed
	unsigned short thread, flags;
} cell;

typedef struct page {
	uintptr_t number;
	struct page *next;
	cell cells[CELLS];
} page;

static struct { uintptr_t at; size_t size; } ignored, shared[2];
static unsigned epoch, launch_epoch, block_epoch; // the present epoch, and the first of the launch and block
static page *table[1 << 16], *cache[CACHE];

void races_ignore(const char *at, size_t size) { ignored.at = (uintptr_t)at, ignored.size = size; }

void races_shared(const char *at, size_t size) {
	int i = shared[0].size > 0;
	shared[i].at = (uintptr_t)at, shared[i].size = size;
}

void races_launch(void) { launch_epoch = ++epoch; }
void races_block(void) { block_epoch = ++epoch; }
void races_barrier(void) { epoch++; }

// find returns a page of cells.
static page *find(uintptr_t number) {
	page **recent = &cache[number % CACHE];
	if (*recent && (*recent)->number == number)
		return *recent;
	page **slot = &table[number % (sizeof table / sizeof *table)];
	page *p = *slot;
	while (p && p->number != number)
		p = p->next;
	if (!p) {
		p = calloc(1, sizeof *p);
		if (!p)
			fiber_fail("no memory to check accesses", NULL);
		p->number = number, p->next = *slot, *slot = p;
	}
	return *recent = p;
}

static void report(const char *what, uintptr_t at, const cell *other) {
	static char text[160];
	if (other)
		snprintf(text, sizeof text, "race: %s of %#zx, after thread %u of %s block", what, (size_t)at, other->thread,
			other->epoch >= block_epoch ? "this" : "another");
	else
		snprintf(text, sizeof text, "uninitialised shared memory: %s of %#zx", what, (size_t)at);
	fiber_fail(text, NULL);
}

// conflicts reports whether an access and an earlier one, whose flags are given, are a race.
static int conflicts(unsigned flags, unsigned earlier) {
	return ((flags | earlier) & (WRITES | BLOCK_WROTE)) && !(flags & earlier & ATOMIC);
}

static void check(uintptr_t at, unsigned flags, int is_shared, cell *c) {
	const char *what = flags & WRITES ? "write" : "read";
	const unsigned thread = fiber_thread().x;
	if (c->epoch == epoch) {
		if (c->thread != thread || c->flags & SEVERAL) {
			if (conflicts(flags, c->flags & ~BLOCK_WROTE))
				report(what, at, c);
			flags |= SEVERAL;
		}
		// A plain and an atomic access of one thread count as plain.
		unsigned atomic = c->flags & flags & ATOMIC, rest = (c->flags | flags) & ~ATOMIC;
		c->flags = atomic | rest;
		return;
	}
	unsigned wrote = 0;
	if (c->epoch >= block_epoch)
		wrote = c->flags & (WRITES | BLOCK_WROTE) ? BLOCK_WROTE : 0;
	else if (is_shared && !(flags & WRITES))
		report(what, at, NULL);
	else if (!is_shared && c->epoch >= launch_epoch && conflicts(flags, c->flags))
		report(what, at, c);
	c->epoch = epoch, c->thread = thread, c->flags = flags | wrote;
}

static void access(const void *address, size_t size, unsigned flags) {
	uintptr_t at = (uintptr_t)address, end = at + size;
	if (at - ignored.at < ignored.size || size == 1)
		return;
	int is_shared = at - shared[0].at < shared[0].size || at - shared[1].at < shared[1].size;
	unsigned bits = size == 2 ? 1 : 2; // of a cell's bytes
	uintptr_t kind = size == 2;        // the pages of the two kinds of cells alternate
	for (; at < end; at += 1 << bits) {
		uintptr_t number = at >> bits;
		check(at, flags, is_shared, &find(number / CELLS * 2 + kind)->cells[number % CELLS]);
	}
}

void races_atomic(const void *at, size_t size) { access(at, size, WRITES | ATOMIC); }

// The names that compilers use.
#define HIDDEN __attribute__((visibility("hidden")))
#define SIZED(n) \
	HIDDEN void __tsan_read##n(void *at) { access(at, n, 0); } \
	HIDDEN void __tsan_write##n(void *at) { access(at, n, WRITES); } \
	HIDDEN void __tsan_unaligned_read##n(void *at) { access(at, n, 0); } \
	HIDDEN void __tsan_unaligned_write##n(void *at) { access(at, n, WRITES); } \
	HIDDEN void __tsan_read_write##n(void *at) { access(at, n, WRITES); } \
	HIDDEN void __tsan_unaligned_read_write##n(void *at) { access(at, n, WRITES); }
SIZED(1)
SIZED(2)
SIZED(4)
SIZED(8)
SIZED(16)
HIDDEN void __tsan_read_range(void *at, size_t size) { access(at, size, 0); }
HIDDEN void __tsan_write_range(void *at, size_t size) { access(at, size, WRITES); }
HIDDEN void __tsan_func_entry(void *caller) { (void)caller; }
HIDDEN void __tsan_func_exit(void) {}
HIDDEN void __tsan_init(void) {}
