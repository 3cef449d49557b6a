// Ports core/coordinator/seats.go.

#include "coordinator.h"

// client_is_new ports Client.isNew.
bool client_is_new(const struct client *c) { return c->probation_until == 0; }

// state_probation ports State.probation.
uint32_t state_probation(const struct state *s) { return s->authority.permissioned ? 0 : s->config.probation_steps; }

// state_probation_end ports State.probationEnd.
uint32_t state_probation_end(const struct state *s) {
	uint32_t most = UINT32_MAX - s->progress.step, steps = state_probation(s);
	return s->progress.step + (steps < most ? steps : most);
}

// state_on_probation ports State.onProbation.
bool state_on_probation(const struct state *s, const struct client *c, uint32_t step) {
	return state_probation(s) != 0 && step < c->probation_until;
}

// state_credit ports State.credit.
void state_credit(const struct state *s, struct client *joins) {
	const struct clients *lists[4] = {&s->pending, &s->epoch.clients, &s->epoch.exited, &s->departed};
	for (uint32_t l = 0; l < 4; l++) {
		int32_t i = index_of(lists[l], &joins->id);
		if (i < 0) continue;
		const struct client *former = &lists[l]->list[i];
		if (former->state == EJECTED) return;
		joins->probation_until = former->probation_until;
		joins->offer = former->offer;
		joins->level = former->level;
		return;
	}
}

// state_has_office ports State.hasOffice.
bool state_has_office(const struct state *s, const struct key *id) {
	return key_equal(id, &s->host) || key_equal(id, &s->authority.main) || key_equal(id, &s->authority.join);
}

// state_is_evictable ports State.isEvictable.
static bool state_is_evictable(const struct state *s, const struct client *c) {
	return client_is_new(c) && !s->authority.permissioned && !state_has_office(s, &c->id);
}

// state_rank ports State.rank.
static uint64_t state_rank(const struct state *s, const struct key *id) {
	struct slice message[2] = {{&s->seed_chain, sizeof s->seed_chain}, {id, sizeof *id}};
	uint64_t hash[4];
	host_sha256(message, 2, (uint8_t *)hash);
	return hash[0];
}

// state_evict evicts the candidate with the given number.
static void state_evict(struct state *s, uint32_t number) {
	for (uint32_t i = 0; i < s->pending.count; i++) {
		if (!state_is_evictable(s, &s->pending.list[i])) continue;
		if (number-- > 0) continue;
		struct client client = s->pending.list[i];
		client.state = WITHDRAWN;
		client_delete(&s->pending, i);
		state_depart(s, &client);
		return;
	}
}

// state_evict_if_full ports State.evictIfFull. It returns false if Go returns ErrFull.
bool state_evict_if_full(struct state *s, const struct key *from) {
	uint32_t room = MAX_CLIENTS, candidates = 0;
	if (s->run_state == WARMUP) room -= state_healthy_count(s) - state_is_healthy(s, from);
	if (s->pending.count < room) return true;
	for (uint32_t i = 0; i < s->pending.count; i++) candidates += state_is_evictable(s, &s->pending.list[i]);
	if (candidates == 0) return false;
	state_evict(s, (uint32_t)(state_rank(s, from) % candidates));
	return true;
}

// state_newcomer_ranks writes the rank for the draw of newcomers to ranks, for each pending client.
// It is UINT64_MAX for a client that is not a newcomer. It returns the number of newcomers.
static uint32_t state_newcomer_ranks(const struct state *s, uint64_t ranks[MAX_CLIENTS]) {
	uint32_t newcomers = 0;
	for (uint32_t i = 0; i < s->pending.count; i++) {
		const struct client *client = &s->pending.list[i];
		ranks[i] = UINT64_MAX;
		if (!client_is_new(client)) continue;
		newcomers++;
		ranks[i] = state_rank(s, &client->id) >> 1;
		if (!client->waited) ranks[i] |= 1ull << 63;
	}
	return newcomers;
}

// lowest returns the highest limit such that at most the given number of ranks are below it. Go
// sorts the ranks. Here the limit is found bit by bit from the top, so the cost does not depend on
// the ranks.
static uint64_t lowest(const uint64_t *ranks, uint32_t count, uint32_t places) {
	uint64_t limit = 0;
	for (uint64_t bit = 1ull << 63; bit > 0; bit >>= 1) {
		uint32_t below = 0;
		for (uint32_t i = 0; i < count; i++) below += ranks[i] < (limit | bit);
		if (below <= places) limit |= bit;
	}
	return limit;
}

// state_draw_newcomers ports State.drawNewcomers. It adds the drawn newcomers to set.
static void state_draw_newcomers(const struct state *s, uint32_t places, uint8_t set[SET_SIZE]) {
	uint64_t ranks[MAX_CLIENTS];
	uint32_t newcomers = state_newcomer_ranks(s, ranks), count = s->pending.count, left = places;
	host_zero(set, SET_SIZE);
	uint64_t limit = newcomers > places ? lowest(ranks, count, places) : UINT64_MAX;
	for (uint32_t i = 0; i < count; i++)
		if (ranks[i] < limit) {
			member_set_add(set, i);
			left--;
		}
	for (uint32_t i = 0; i < count && left > 0; i++)
		if (ranks[i] == limit && client_is_new(&s->pending.list[i])) {
			member_set_add(set, i);
			left--;
		}
}

// state_make_room ports State.makeRoom.
void state_make_room(struct state *s, uint32_t room) {
	struct clients *pending = &s->pending;
	if (pending->count <= room) return;
	uint32_t over = pending->count - room, newcomers = 0, kept = 0, count = pending->count;
	uint8_t drawn[SET_SIZE];
	for (uint32_t i = 0; i < count; i++) newcomers += client_is_new(&pending->list[i]);
	state_draw_newcomers(s, newcomers > over ? newcomers - over : 0, drawn);
	for (uint32_t i = 0; i < count && kept < room; i++)
		if (!client_is_new(&pending->list[i]) || member_set_has(drawn, i)) pending->list[kept++] = pending->list[i];
	host_zero(&pending->list[kept], (count - kept) * sizeof(struct client));
	pending->count = kept;
}

// state_places ports State.places.
static uint32_t state_places(const struct state *s, uint32_t regular, uint32_t young) {
	uint32_t known = regular + young, least = s->config.init_min_clients;
	if (state_probation(s) == 0 || known == 0) return MAX_CLIENTS - known;
	if (regular == 0) {
		regular = young;
		young = 0;
	}
	uint32_t most = (regular - 1) / 2 > 1 ? (regular - 1) / 2 : 1, places = most > young ? most - young : 0;
	return least > known + places ? least - known : places;
}

// state_seat_pending ports State.seatPending. It writes to the list of members, which must be
// empty.
void state_seat_pending(struct state *s) {
	struct clients *pending = &s->pending, *members = &s->epoch.clients;
	uint32_t regular = 0, young = 0, waiting = 0, count = pending->count;
	uint8_t drawn[SET_SIZE];
	for (uint32_t i = 0; i < count; i++) {
		const struct client *client = &pending->list[i];
		if (client_is_new(client)) continue;
		if (state_on_probation(s, client, s->progress.step))
			young++;
		else
			regular++;
	}
	state_draw_newcomers(s, state_places(s, regular, young), drawn);
	for (uint32_t i = 0; i < count; i++) {
		const struct client *client = &pending->list[i];
		if (client_is_new(client) && !member_set_has(drawn, i))
			pending->list[waiting++] = *client;
		else
			client_add(members, client);
	}
	host_zero(&pending->list[waiting], (count - waiting) * sizeof(struct client));
	pending->count = waiting;
}
