// The instructions that begin a run and advance it.

#include "program.h"

enum {
	DRAW_WAIT = 2,        // slots between the first due tick and the slot whose hash gives the draw
	DRAW_FORGOTTEN = 400, // slots after which the chain may no longer have that hash; the chain keeps 512
};

// run_account returns the account of a run if it has this version.
uint64_t run_account(const struct call *c, struct account **a) {
	*a = (struct account *)c->target->data;
	if (c->target->size < offsetof(struct account, slot)) return INVALID_ACCOUNT_DATA;
	if ((*a)->magic == 0) return UNINITIALIZED_ACCOUNT;
	if ((*a)->magic != RUN_MAGIC) return INVALID_ACCOUNT_DATA;
	if ((*a)->version != ACCOUNT_VERSION) return ERR_OTHER_VERSION;
	return c->target->size == sizeof **a ? 0 : INVALID_ACCOUNT_DATA;
}

// begun_account returns the account of a run that has begun.
uint64_t begun_account(const struct call *c, struct account **a) {
	uint64_t refused = run_account(c, a);
	if (refused) return refused;
	if ((*a)->state.magic == 0) return UNINITIALIZED_ACCOUNT;
	return (*a)->state.version == STATE_VERSION ? 0 : ERR_OTHER_VERSION;
}

// run_init turns an account of zeros into a run. The signer becomes its main authority.
uint64_t run_init(const struct call *c) {
	struct account *a = (struct account *)c->target->data;
	if (c->size > 0) return INVALID_INSTRUCTION_DATA;
	if (c->target->size != sizeof *a) return INVALID_ACCOUNT_DATA;
	const uint8_t *bytes = c->target->data; // all bytes are zero if the first eight are and each byte equals the byte eight positions before it
	if (a->magic != 0 || !host_equal(bytes, bytes + 8, sizeof *a - 8)) return ACCOUNT_ALREADY_INITIALIZED;
	a->magic = RUN_MAGIC;
	a->version = ACCOUNT_VERSION;
	a->main = c->signer->address;
	return 0;
}

// run_genesis begins a run with the staged genesis: length u32, SHA-256. The host is the account's
// own address. No key can sign for that address, so no action can come from the host.
uint64_t run_genesis(const struct call *c) {
	struct account *a;
	uint64_t length = 0, refused = run_account(c, &a);
	struct event e = {.instruction = GENESIS, .sequence = 1};
	struct cause by = {.actor = c->signer->address, .data = c->data, .size = c->size};
	if (refused) return refused;
	if (!key_equal(&c->signer->address, &a->main)) return INCORRECT_AUTHORITY;
	if (a->state.magic != 0) return ACCOUNT_ALREADY_INITIALIZED;
	if ((refused = staged_bytes(a, c->data, c->size, &length))) return refused;
	if ((refused = state_genesis(&a->state, a->stage, length))) return refused;
	const struct state *s = &a->state;
	if (!key_equal(&s->host, &c->target->address) || !key_equal(&s->authority.main, &a->main)) return ERR_INVALID_CONFIG;
	if (!is_address_with_seed(&s->host, &a->main, s->run_id, s->run_id_length, c->program)) return INVALID_SEEDS;
	if ((refused = read_clock(&e.slot, &e.now))) return refused;
	first_head(a, c, length);
	next_head(a, &e, &by);
	clear_stage(a);
	note_change(a, &e);
	return 0;
}

// apply_staged applies the staged UpdateConfig: kind u8, length u32, SHA-256.
static uint64_t apply_staged(struct account *a, const struct call *c, uint64_t nonce, const uint8_t *action, uint64_t size) {
	uint64_t length = 0, refused = staged_bytes(a, action + 1, size - 1, &length);
	if (refused) return refused;
	uint8_t *kind = &a->lead[sizeof a->lead - 1];
	*kind = UPDATE_CONFIG;
	if ((refused = state_apply(&a->state, &c->signer->address, nonce, kind, length + 1))) return refused;
	*kind = 0;
	clear_stage(a);
	return 0;
}

// run_act applies an action of the signer: nonce u64, then the action.
uint64_t run_act(const struct call *c) {
	struct account *a;
	uint64_t refused = begun_account(c, &a);
	struct event e = {.instruction = ACT};
	if (refused) return refused;
	if (c->size < 8) return INVALID_INSTRUCTION_DATA;
	struct cause by = {c->signer->address, uint64_at(c->data), c->data + 8, c->size - 8};
	if (by.size > 0 && by.data[0] == EQUIVOCATION && (refused = check_proof(c))) return refused;
	if (by.size > 0 && by.data[0] == ADMIT && (refused = check_grant(c, &a->state))) return refused;
	if (by.size > 0 && by.data[0] == UPDATE_CONFIG)
		refused = apply_staged(a, c, by.nonce, by.data, by.size);
	else
		refused = state_apply(&a->state, &by.actor, by.nonce, by.data, by.size);
	if (refused) return refused;
	if ((refused = read_clock(&e.slot, &e.now))) return refused;
	e.sequence = a->state.sequence + 1;
	next_head(a, &e, &by);
	note_change(a, &e);
	if (by.data[0] == SET_PAUSED) a->armed = 0; // the tick may no longer be due; its draw would be known before it is used
	return 0;
}

// draw_ready sets ready if the tick has the draw that it needs. The first due tick only records its
// slot, so that the draw comes from a later slot, whose hash is not known yet.
static uint64_t draw_ready(struct account *a, const struct call *c, struct event *e, bool *ready) {
	uint64_t at = 0;
	*ready = !needs_draw(&a->state);
	if (*ready || !state_due(&a->state, e->now, &at) || at > e->now) return 0;
	if (a->armed != 0 && e->slot - a->armed <= DRAW_FORGOTTEN) return read_draw(e, a->armed + DRAW_WAIT, &c->target->address, ready);
	a->armed = e->slot;
	return 0;
}

// run_tick applies the passing of time. Any key may send it. If nothing is due, it changes nothing.
uint64_t run_tick(const struct call *c) {
	struct account *a;
	uint64_t refused = begun_account(c, &a);
	struct event e = {.instruction = TICK};
	struct cause nobody = {.data = c->data};
	bool ready;
	if (refused) return refused;
	if (c->size > MAX_SALT) return INVALID_INSTRUCTION_DATA;
	if ((refused = read_clock(&e.slot, &e.now))) return refused;
	if ((refused = draw_ready(a, c, &e, &ready))) return refused;
	if (!ready || !state_tick(&a->state, e.now, &e.draw)) return 0;
	e.sequence = a->state.sequence + 1;
	next_head(a, &e, &nobody);
	note_change(a, &e);
	return 0;
}
