// The log of a run: one event per change, and the hash chain over all events.

#include "program.h"

// read_clock reads the slot and the time in milliseconds.
uint64_t read_clock(uint64_t *slot, uint64_t *now) {
	struct clock clock;
	if (sol_get_clock_sysvar(&clock)) return UNSUPPORTED_SYSVAR;
	*slot = clock.slot;
	*now = clock.unix_timestamp > 0 ? (uint64_t)clock.unix_timestamp * 1000 : 0;
	return 0;
}

// first_head computes the start of the hash chain, before the genesis event.
void first_head(struct account *a, const struct call *c, uint64_t size) {
	struct key digest;
	struct slice staged = {a->stage, size};
	host_sha256(&staged, 1, (uint8_t *)&digest);
	struct slice message[5] = {
		{"psyche/genesis/v1", 17}, {c->program, sizeof *c->program}, {&c->target->address, sizeof(struct key)},
		{&a->main, sizeof a->main}, {&digest, sizeof digest},
	};
	host_sha256(message, 5, (uint8_t *)&a->head);
}

// next_head computes the hash chain's next head, which covers the event and its cause.
void next_head(const struct account *a, struct event *e, const struct cause *by) {
	struct slice message[6] = {
		{"psyche/event/v1", 15}, {&a->head, sizeof a->head}, {e, offsetof(struct event, head)},
		{&by->actor, sizeof by->actor}, {&by->nonce, sizeof by->nonce}, {by->data, by->size},
	};
	host_sha256(message, 6, (uint8_t *)&e->head);
}

// note_change records a change of state in the account and logs it. After a tick or a change of
// phase, the account no longer waits for the slot of a tick's draw.
void note_change(struct account *a, struct event *e) {
	a->state.sequence = e->sequence;
	if (e->instruction == TICK || a->run_state != a->state.run_state) a->armed = 0;
	a->run_state = a->state.run_state;
	a->closed = a->state.closed;
	a->slot = e->slot;
	a->head = e->head;
	struct slice logged = {e, sizeof *e};
	sol_log_data(&logged, 1);
}
