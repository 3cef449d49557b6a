// The program in which the tests run the rules on the chain's machine. Its input is no
// transaction's but an operation, as in native.c, with the state behind it.

#include "coordinator.h"

enum operation_kind { GENESIS, APPLY, TICK, DUE };

struct input {
	uint64_t kind;
	struct key from;
	uint64_t nonce, now, seed, size, number;
	struct state state;
	uint8_t body[];
};

uint64_t entrypoint(struct input *in) {
	switch (in->kind) {
	case GENESIS: return state_genesis(&in->state, in->body, in->size);
	case APPLY: return state_apply(&in->state, &in->from, in->nonce, in->body, in->size);
	case TICK: return state_tick(&in->state, in->now, in->seed);
	case DUE: return state_due(&in->state, in->now, &in->number);
	}
	return UINT64_MAX;
}
