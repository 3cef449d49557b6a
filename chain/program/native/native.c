// The host for tests: a process that holds one state, reads operations from its standard input and
// writes their results to its standard output.
//
// An operation is its length in bytes, a kind, a key, three numbers, and the rest. The answer is a
// result, a number and the changed parts of the state: their count, then for each part its number
// and its bytes. All integers are little endian.

#include "coordinator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum operation_kind { GENESIS, APPLY, TICK, DUE, LOAD };
enum { PART = 512, PARTS = (sizeof(struct state) + PART - 1) / PART, MAX_OPERATION = 1 << 19 };

struct operation {
	uint64_t kind;
	struct key from;
	uint64_t nonce, now;
	struct key draw;
};

void host_move(void *to, const void *from, uint64_t size) {
	if (size > 0) memmove(to, from, size);
}

void host_zero(void *at, uint64_t size) {
	if (size > 0) memset(at, 0, size);
}

bool host_equal(const void *a, const void *b, uint64_t size) { return size == 0 || memcmp(a, b, size) == 0; }

void *host_scratch(void) {
	static uint64_t scratch[SCRATCH_SIZE / 8];
	return scratch;
}

static struct state state, shown;

// perform executes an operation. It copies the body to memory of exactly that size, so that a
// memory checker detects reads beyond the end.
static uint64_t perform(const struct operation *o, const uint8_t *body, uint64_t size, uint64_t *number) {
	uint8_t *copy = malloc(size > 0 ? size : 1);
	uint64_t result = UINT64_MAX;
	memcpy(copy, body, size);
	*number = 0;
	switch (o->kind) {
	case GENESIS:
		memset(&state, 0, sizeof state);
		result = state_genesis(&state, copy, size);
		break;
	case APPLY: result = state_apply(&state, &o->from, o->nonce, copy, size); break;
	case TICK: result = state_tick(&state, o->now, &o->draw); break;
	case DUE: result = state_due(&state, o->now, number); break;
	case LOAD:
		if (size != sizeof state) break;
		memcpy(&state, copy, size);
		result = ACCEPTED;
		break;
	}
	free(copy);
	return result;
}

static void write_all(const void *bytes, size_t size) {
	if (fwrite(bytes, 1, size, stdout) != size) exit(3);
}

static void answer(uint64_t result, uint64_t number) {
	const uint8_t *now = (const uint8_t *)&state;
	uint8_t *before = (uint8_t *)&shown;
	uint32_t changed[PARTS], count = 0;
	for (uint32_t part = 0; part < PARTS; part++) {
		size_t at = (size_t)part * PART, size = sizeof state - at < PART ? sizeof state - at : PART;
		if (memcmp(now + at, before + at, size) == 0) continue;
		memcpy(before + at, now + at, size);
		changed[count++] = part;
	}
	write_all(&result, sizeof result);
	write_all(&number, sizeof number);
	write_all(&count, sizeof count);
	for (uint32_t i = 0; i < count; i++) {
		size_t at = (size_t)changed[i] * PART, size = sizeof state - at < PART ? sizeof state - at : PART;
		write_all(&changed[i], sizeof changed[i]);
		write_all(before + at, size);
	}
	if (fflush(stdout) != 0) exit(3);
}

int main(void) {
	static uint8_t buffer[MAX_OPERATION];
	uint32_t size;
	while (fread(&size, sizeof size, 1, stdin) == 1) {
		struct operation o;
		uint64_t number, result;
		if (size < sizeof o || size > sizeof buffer || fread(buffer, 1, size, stdin) != size) return 2;
		memcpy(&o, buffer, sizeof o);
		result = perform(&o, buffer + sizeof o, size - sizeof o, &number);
		answer(result, number);
	}
	return 0;
}
