// Ports core/coordinator/apply.go.

#include "coordinator.h"

// nonces ports State.nonces: the fields that store the last nonce of a key with a role.
struct nonces {
	uint64_t *place[4];
	uint32_t count;
};

static void state_nonces(struct state *s, const struct key *id, struct nonces *n) {
	n->count = 0;
	if (key_equal(id, &s->host)) n->place[n->count++] = &s->host_nonce;
	if (key_equal(id, &s->authority.main)) n->place[n->count++] = &s->authority.main_nonce;
	if (key_equal(id, &s->authority.join)) n->place[n->count++] = &s->authority.join_nonce;
	struct authorization *authorization = authority_authorization(&s->authority, id);
	if (authorization) n->place[n->count++] = &authorization->nonce;
}

// state_client_list ports State.clientLists: all lists that store clients.
struct clients *state_client_list(struct state *s, uint32_t i) {
	switch (i) {
	case 0: return &s->epoch.clients;
	case 1: return &s->pending;
	case 2: return &s->epoch.exited;
	default: return &s->departed;
	}
}

// state_last_nonce ports State.lastNonce.
static uint64_t state_last_nonce(struct state *s, const struct key *id) {
	struct nonces nonces;
	uint64_t last = 0;
	state_nonces(s, id, &nonces);
	for (uint32_t i = 0; i < nonces.count; i++)
		if (*nonces.place[i] > last) last = *nonces.place[i];
	for (uint32_t l = 0; l < CLIENT_LISTS; l++) {
		const struct clients *clients = state_client_list(s, l);
		int32_t i = index_of(clients, id);
		if (i >= 0 && clients->list[i].nonce > last) last = clients->list[i].nonce;
	}
	return last;
}

// state_record_nonce ports State.recordNonce.
static void state_record_nonce(struct state *s, const struct key *id, uint64_t nonce) {
	struct nonces nonces;
	state_nonces(s, id, &nonces);
	for (uint32_t i = 0; i < nonces.count; i++) *nonces.place[i] = nonce;
	for (uint32_t l = 0; l < CLIENT_LISTS; l++) {
		struct clients *clients = state_client_list(s, l);
		int32_t i = index_of(clients, id);
		if (i < 0) continue;
		clients->list[i].nonce = nonce;
		if (clients == &s->epoch.clients) clients->list[i].active = 1;
	}
}

// state_forget_departed ports State.forgetDeparted.
static void state_forget_departed(struct state *s, const struct key *id) {
	int32_t i = index_of(&s->departed, id);
	if (i >= 0) client_delete(&s->departed, (uint32_t)i);
}

// state_join ports State.join.
static enum code state_join(struct state *s, const struct key *from, const struct action *a) {
	if (a->number != s->progress.epoch) return ERR_WRONG_EPOCH;
	if (!authority_may_join(&s->authority, from) || state_is_ejected(s, from)) return ERR_NOT_AUTHORISED;
	struct client fresh;
	host_zero(&fresh, sizeof fresh);
	fresh.id = *from;
	fresh.commitment = a->commitment;
	state_recorded_as(s, &a->id, &fresh);
	int32_t i = index_of(&s->pending, from);
	if (i >= 0) {
		struct client *waiting = &s->pending.list[i];
		bool as_before = waiting->holds_model == fresh.holds_model && waiting->holds_earlier == fresh.holds_earlier;
		if (as_before && key_equal(&waiting->commitment, &a->commitment)) return ERR_DUPLICATE;
		if (fresh.holds_model || !waiting->holds_model) {
			waiting->holds_model = fresh.holds_model;
			waiting->holds_earlier = fresh.holds_earlier;
			waiting->commitment = a->commitment;
			return ACCEPTED;
		}
		state_credit(s, &fresh);
		client_delete(&s->pending, (uint32_t)i);
		client_add(&s->pending, &fresh);
		return ACCEPTED;
	}
	if (!state_evict_if_full(s, from)) return ERR_FULL;
	state_credit(s, &fresh);
	struct client *member = state_member(s, from);
	if (member && member->state == HEALTHY) member->state = WITHDRAWN;
	client_add(&s->pending, &fresh);
	state_forget_departed(s, from);
	return ACCEPTED;
}

// state_depart ports State.depart.
void state_depart(struct state *s, const struct client *client) {
	state_forget_departed(s, &client->id);
	if (s->departed.count == MAX_CLIENTS) {
		uint32_t oldest = 0;
		while (oldest < MAX_CLIENTS && !client_is_new(&s->departed.list[oldest])) oldest++;
		client_delete(&s->departed, oldest < MAX_CLIENTS ? oldest : 0);
	}
	client_add(&s->departed, client);
	struct client *departed = &s->departed.list[s->departed.count - 1];
	departed->waited = 0;
	client_forget_report(departed);
}

// state_withdraw ports State.withdraw.
static enum code state_withdraw(struct state *s, const struct key *from, const struct action *a) {
	if (!key_equal(from, &a->id) && !key_equal(from, &s->host)) return ERR_NOT_AUTHORISED;
	int32_t i = index_of(&s->pending, &a->id);
	if (i >= 0) {
		struct client client = s->pending.list[i];
		client.state = WITHDRAWN;
		client_delete(&s->pending, (uint32_t)i);
		state_depart(s, &client);
		return ACCEPTED;
	}
	struct client *client = state_member(s, &a->id);
	if (!client || client->state != HEALTHY) return ERR_NOT_MEMBER;
	client->state = WITHDRAWN;
	return ACCEPTED;
}

// state_ready ports State.ready.
static enum code state_ready(struct state *s, const struct key *from, const struct action *a) {
	if (s->run_state != WARMUP) return ERR_WRONG_STATE;
	if (a->number != s->progress.epoch) return ERR_WRONG_EPOCH;
	struct client *client = state_member(s, from);
	if (!client || client->state != HEALTHY) return ERR_NOT_MEMBER;
	if (client->ready) return ERR_DUPLICATE;
	if (!client_reveals(client, &a->id)) return ERR_INVALID_ACTION;
	state_add_reveal(s, client, a);
	client->holds_model = 1;
	client->ready = 1;
	s->epoch.ready[s->epoch.ready_count++] = *from;
	return ACCEPTED;
}

// state_witness ports State.witness.
static enum code state_witness(struct state *s, const struct key *from, const struct action *a) {
	if (s->run_state != ROUND_TRAIN && s->run_state != ROUND_WITNESS) return ERR_WRONG_STATE;
	struct round *round = state_current_round(s);
	uint32_t member;
	if (a->number != round->step) return ERR_WRONG_STEP;
	struct client *client = state_member(s, from);
	if (!round_member_index(round, from, &member) || !client || client->state != HEALTHY) return ERR_NOT_MEMBER;
	for (uint32_t i = 0; i < round->witness_count; i++)
		if (round->witnesses[i].member == member) return ERR_DUPLICATE;
	if (!member_set_has(round->elected, member)) return ERR_NOT_ELECTED;
	struct witness *w = &round->witnesses[round->witness_count];
	host_move(&w->participants, a->witness, sizeof *w - offsetof(struct witness, participants));
	if (round_overfills(round, w)) {
		host_zero(w, sizeof *w);
		return ERR_INVALID_WITNESS;
	}
	if (!round_add_reveal(round, client, &a->id)) {
		host_zero(w, sizeof *w);
		return ERR_INVALID_ACTION;
	}
	w->member = (uint16_t)member;
	w->loss = a->loss;
	w->speed = a->speed;
	round->witness_count++;
	return ACCEPTED;
}

// state_return_seat ports State.returnSeat.
static enum code state_return_seat(struct state *s, const struct key *from, const struct action *a) {
	if (s->run_state != ROUND_TRAIN && s->run_state != ROUND_WITNESS) return ERR_WRONG_STATE;
	if (a->number != s->progress.epoch) return ERR_WRONG_EPOCH;
	if (state_is_healthy(s, from)) return ERR_DUPLICATE;
	int32_t i = index_of(&s->epoch.exited, from);
	if (i < 0) return ERR_NOT_MEMBER;
	struct client client = s->epoch.exited.list[i];
	if (client.state == EJECTED || state_is_ejected(s, from) || !authority_may_join(&s->authority, from)) return ERR_NOT_AUTHORISED;
	int32_t waits = index_of(&s->pending, from);
	if (client.returns >= MAX_RETURNS) return ERR_FULL;
	if (waits >= 0) client_delete(&s->pending, (uint32_t)waits);
	client_delete(&s->epoch.exited, (uint32_t)i);
	client.state = HEALTHY;
	client.exited_height = 0;
	client.returns++;
	client.holds_earlier = 0;
	client.optimizer_since = s->progress.step;
	if (client.lateness == FOUND_LATE) client.lateness = LATE;
	client.ready = index_of_key(s->epoch.ready, s->epoch.ready_count, from) >= 0;
	client_add(&s->epoch.clients, &client);
	return ACCEPTED;
}

// state_apply_action ports State.apply.
static enum code state_apply_action(struct state *s, const struct key *from, const struct action *a) {
	switch (a->kind) {
	case JOIN: return state_join(s, from, a);
	case WITHDRAW: return state_withdraw(s, from, a);
	case REPORT_UPLOAD: return state_report_upload(s, from, a);
	case SET_PAUSED: return state_set_paused(s, from, a);
	case UPDATE_CONFIG: return state_update_config(s, from, a);
	case AUTHORIZE: return state_authorize(s, from, a);
	case SET_DELEGATES: return state_set_delegates(s, from, a);
	case ADMIT: return state_admit(s, from, a);
	case EJECT: return state_eject(s, from, a);
	case EQUIVOCATION: return state_equivocate(s, from, a);
	case CLOSE: return state_close(s, from);
	default: break;
	}
	if (s->run_state == PAUSED) return ERR_HALTED;
	switch (a->kind) {
	case READY: return state_ready(s, from, a);
	case RETURN: return state_return_seat(s, from, a);
	case WITNESS_ROUND: return state_witness(s, from, a);
	case OFFER: return state_offer(s, from, a);
	case HEALTH_CHECK: return state_health_check(s, from, a);
	case REPORT_CHECKPOINT: return state_report(s, from, a);
	case ACCUSE: return state_accuse(s, from, a);
	case VOTE: return state_vote(s, from, a);
	default: return ERR_INVALID_ACTION;
	}
}

// state_apply ports DecodeAction followed by State.Apply.
enum code state_apply(struct state *s, const struct key *from, uint64_t nonce, const uint8_t *action, uint64_t size) {
	struct action a;
	enum code refused = decode_action(&a, action, size);
	if (refused) return refused;
	if (s->run_state == UNINITIALIZED || s->closed) return ERR_HALTED;
	if (s->run_state == FINISHED && a.kind != CLOSE) return ERR_HALTED;
	if (nonce <= state_last_nonce(s, from)) return ERR_STALE_NONCE;
	refused = state_apply_action(s, from, &a);
	if (refused) return refused;
	state_record_nonce(s, from, nonce);
	return ACCEPTED;
}
