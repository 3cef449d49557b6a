// The entry point of the program.

#include "program.h"

uint64_t entrypoint(uint8_t *input) {
	struct call c;
	uint64_t refused = read_call(&c, input);
	if (refused) return refused;
	switch (c.instruction) {
	case INIT: return run_init(&c);
	case WRITE: return run_write(&c);
	case GENESIS: return run_genesis(&c);
	case ACT: return run_act(&c);
	case TICK: return run_tick(&c);
	case FREE: return run_free(&c);
	case ANNOUNCE: return peer_announce(&c);
	case FORGET: return peer_forget(&c);
	case MIGRATE: return run_migrate(&c);
	case GRANT: return grant_create(&c);
	case DELEGATE: return grant_delegate(&c);
	}
	return INVALID_INSTRUCTION_DATA;
}
