// The threads of a block run as fibers, each until it meets others: at a barrier, or at a vote or
// shuffle of its warp. Warps run in random order, from $PSYCHE_EMULATED_SEED. Threads that do not meet
// as CUDA requires are an error. So are races, if the kernels were compiled with checks: see races.c.

#define _GNU_SOURCE
#undef _FORTIFY_SOURCE // longjmp between stacks

#include "fibers.h"
#include "races.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { MAX_THREADS = 1024, WARP = 32, STACK = 1 << 16 };

typedef enum { READY, AT_BARRIER, AT_WARP, DONE } state;

typedef struct {
	jmp_buf here;
	int started; // has a stack; it runs its next block, when the previous is done
	state state;
	const char *site;  // where it waits
	unsigned meetings; // number of votes and shuffles
} fiber;

static fiber_index threadIdx, blockIdx, gridDim;
_Alignas(16) char fiber_dynamic[FIBER_DYNAMIC_LIMIT];
extern char __start_psyche_shared[], __stop_psyche_shared[];

static fiber fibers[MAX_THREADS];
static unsigned values[2][MAX_THREADS]; // of votes and shuffles, by parity of the meeting
static char *stacks;
static unsigned count; // of threads in a block
static const fiber_kernel *running;
static const void *given;
static jmp_buf scheduler;
static char failure[512];
static uint64_t random_state;

fiber_index fiber_thread(void) { return threadIdx; }
fiber_index fiber_block(void) { return blockIdx; }
fiber_index fiber_blocks(void) { return gridDim; }

static unsigned draw(unsigned below) {
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(random_state >> 33) % below;
}

void fiber_fail(const char *what, const char *site) {
	if (!*failure)
		snprintf(failure, sizeof failure, "%s, block %u, thread %u: %s%s%s", running->name, blockIdx.x, threadIdx.x,
			what, site ? " at " : "", site ? site : "");
	_longjmp(scheduler, 1);
}

// pause returns when the scheduler continues this fiber.
static void pause_at(state why, const char *site) {
	fiber *f = &fibers[threadIdx.x];
	f->state = why;
	f->site = site;
	if (!_setjmp(f->here))
		_longjmp(scheduler, 1);
}

void fiber_barrier(const char *site) { pause_at(AT_BARRIER, site); }

// meet exchanges values in a warp: it returns the values of the warp's lanes.
static const unsigned *meet(const char *site, unsigned mask, unsigned value) {
	if (mask != 0xffffffffu)
		fiber_fail("a mask without all lanes", site);
	unsigned self = threadIdx.x, *all = values[fibers[self].meetings++ & 1];
	all[self] = value;
	pause_at(AT_WARP, site);
	return all + self / WARP * WARP;
}

unsigned fiber_ballot(const char *site, unsigned mask, int predicate) {
	const unsigned *votes = meet(site, mask, predicate);
	unsigned set = 0;
	for (int lane = 0; lane < WARP; lane++)
		set |= votes[lane] << lane;
	return set;
}

unsigned fiber_shuffle(const char *site, unsigned mask, unsigned value, int kind, int of) {
	const unsigned *lanes = meet(site, mask, value);
	int lane = threadIdx.x % WARP;
	int from = kind == FIBER_INDEX ? of & (WARP - 1) : kind == FIBER_UP ? lane - of : lane ^ of;
	return from < 0 || from >= WARP ? value : lanes[from];
}

static void start(void) {
	for (;;) {
		running->start(given);
		pause_at(DONE, NULL);
	}
}

// resume runs a fiber until it pauses.
static void resume(unsigned thread) {
	fiber *f = &fibers[thread];
	threadIdx.x = thread;
	if (_setjmp(scheduler))
		return;
	if (f->started)
		_longjmp(f->here, 1);
	f->started = 1;
	static ucontext_t context;
	getcontext(&context);
	context.uc_stack.ss_sp = stacks + (size_t)thread * STACK;
	context.uc_stack.ss_size = STACK;
	makecontext(&context, start, 0);
	setcontext(&context);
}

static unsigned waiting(unsigned first, unsigned end, state for_what) {
	unsigned n = 0;
	for (unsigned i = first; i < end; i++)
		n += fibers[i].state == for_what;
	return n;
}

// same_site checks that threads wait at one point of the source.
static void same_site(unsigned first, unsigned end) {
	for (unsigned i = first + 1; i < end && !*failure; i++)
		if (fibers[i].site != fibers[first].site && strcmp(fibers[i].site, fibers[first].site) != 0)
			snprintf(failure, sizeof failure, "%s, block %u: divergence: thread %u is at %s, thread %u at %s",
				running->name, blockIdx.x, first, fibers[first].site, i, fibers[i].site);
}

static void make_ready(unsigned first, unsigned end) {
	for (unsigned i = first; i < end; i++)
		fibers[i].state = READY;
}

// run_warp runs the threads of a warp until they meet.
static void run_warp(unsigned first, unsigned end) {
	int upwards = draw(2);
	for (unsigned i = first; i < end && !*failure; i++)
		resume(upwards ? i : first + end - 1 - i);
	unsigned at_warp = waiting(first, end, AT_WARP);
	if (*failure || at_warp == 0)
		return;
	if (at_warp != WARP) {
		for (unsigned i = first; i < end; i++)
			if (fibers[i].state == AT_WARP && !*failure)
				snprintf(failure, sizeof failure, "%s, block %u: divergence: %u lanes of the warp of thread %u are at %s",
					running->name, blockIdx.x, at_warp, i, fibers[i].site);
		return;
	}
	same_site(first, end);
	make_ready(first, end);
}

// step runs one warp, or ends a barrier. It returns 0 if the block is done.
static int step(void) {
	unsigned ready[MAX_THREADS / WARP], n = 0;
	for (unsigned first = 0; first < count; first += WARP)
		if (fibers[first].state == READY)
			ready[n++] = first;
	if (n > 0) {
		unsigned first = ready[draw(n)], end = first + WARP < count ? first + WARP : count;
		run_warp(first, end);
		return 1;
	}
	unsigned at_barrier = waiting(0, count, AT_BARRIER);
	if (at_barrier == 0)
		return 0;
	if (at_barrier != count) {
		snprintf(failure, sizeof failure, "%s, block %u: deadlock: %u of %u threads are at a barrier", running->name, blockIdx.x,
			at_barrier, count);
		return 0;
	}
	same_site(0, count);
	make_ready(0, count);
	races_barrier();
	return 1;
}

static void run_block(size_t dynamic) {
	memset(__start_psyche_shared, 0xff, __stop_psyche_shared - __start_psyche_shared);
	memset(fiber_dynamic, 0xff, dynamic);
	make_ready(0, count);
	races_block();
	while (!*failure && step())
		;
}

const char *fiber_launch(const fiber_kernel *kernel, const void *arguments, unsigned blocks, unsigned threads, size_t dynamic) {
	if (!stacks) {
		stacks = mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (stacks == MAP_FAILED)
			return "no memory for stacks";
		const char *seed = getenv("PSYCHE_EMULATED_SEED");
		random_state = seed ? strtoull(seed, NULL, 10) : 1;
		races_ignore(stacks, (size_t)MAX_THREADS * STACK);
		races_shared(__start_psyche_shared, __stop_psyche_shared - __start_psyche_shared);
		races_shared(fiber_dynamic, sizeof fiber_dynamic);
	}
	running = kernel, given = arguments, count = threads;
	*failure = 0;
	gridDim.x = blocks;
	races_launch();
	unsigned first = draw(blocks), upwards = draw(2);
	for (unsigned i = 0; i < blocks && !*failure; i++) {
		blockIdx.x = (first + (upwards ? i : blocks - i)) % blocks;
		run_block(dynamic);
	}
	if (!*failure)
		return NULL;
	memset(fibers, 0, sizeof fibers); // they are in the middle of a block
	return failure;
}

unsigned fiber_atomic_add(unsigned *at, unsigned value) {
	races_atomic(at, sizeof *at);
	unsigned old = *at;
	*at += value;
	return old;
}

long long fiber_atomic_min(long long *at, long long value) {
	races_atomic(at, sizeof *at);
	long long old = *at;
	if (value < old)
		*at = value;
	return old;
}
