// Ports core/coordinator/health.go.

#include "coordinator.h"

// round_score ports Round.score.
uint32_t round_score(const struct round *r, const struct filter_keys *keys, const struct key *id) {
	struct filter_positions positions;
	bloom_positions(keys, id, &positions);
	return round_score_positions(r, &positions);
}

// round_score_positions ports Round.score for a client with these positions in the filters.
uint32_t round_score_positions(const struct round *r, const struct filter_positions *positions) {
	uint32_t score = 0;
	for (uint32_t i = 0; i < r->witness_count; i++) score += bloom_contains_positions(&r->witnesses[i].participants, positions);
	return score;
}

// round_proved_missing ports Round.provedMissing for a client with this score.
bool round_proved_missing(const struct round *r, uint32_t score) {
	uint32_t silent = (uint32_t)r->witnesses_elected - r->witness_count;
	return round_has_quorum(r) && score + silent < r->witnesses_needed;
}

// round_denied ports Round.denied for a client with this score.
bool round_denied(const struct round *r, uint32_t score) { return r->witness_count >= score + r->witnesses_needed; }

static uint32_t less(uint32_t most, uint32_t count) { return most > count ? most - count : 0; }

static uint32_t count_slow(const struct clients *clients) {
	uint32_t slow = 0;
	for (uint32_t i = 0; i < clients->count; i++) slow += clients->list[i].lateness == SLOW;
	return slow;
}

// state_room ports State.room. Negative values become 0.
void state_room(const struct state *s, struct room *left) {
	uint32_t third = state_seats(s) / 3, dropped = 0;
	if (third == 0) third = 1;
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) dropped += s->epoch.clients.list[i].state == DROPPED;
	left->drop = less(third, dropped);
	left->slow = less(third, count_slow(&s->epoch.clients) + count_slow(&s->epoch.exited));
}

// client_after_finding ports Client.afterFinding. It changes the client and the remaining room, and
// reports whether it changed the client.
bool client_after_finding(struct client *c, struct room *left, bool denied) {
	if (c->lateness == ON_TIME) {
		c->lateness = FOUND_LATE;
		return true;
	}
	if (c->lateness == LATE && denied && left->drop > 0) {
		c->state = DROPPED;
		left->drop--;
		return true;
	}
	if (c->lateness == LATE && !denied && left->slow > 0) {
		c->lateness = SLOW;
		left->slow--;
		return true;
	}
	return false;
}

// state_seats ports State.Seats.
uint32_t state_seats(const struct state *s) { return s->epoch.clients.count + s->epoch.exited.count; }

// state_keep_findings ports State.keepFindings.
void state_keep_findings(struct state *s) {
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		struct client *client = &s->epoch.clients.list[i];
		if (client->lateness == FOUND_LATE) client->lateness = LATE;
	}
}

// state_is_back ports State.isBack.
static bool state_is_back(struct state *s, const struct client *client) {
	uint32_t member;
	return client->returns > 0 && !round_member_index(state_current_round(s), &client->id, &member);
}

// state_health_check ports State.healthCheck. A client named twice is a member of the round at its
// second occurrence, because otherwise the first occurrence was refused.
enum code state_health_check(struct state *s, const struct key *from, const struct action *a) {
	if (!state_active(s)) return ERR_WRONG_STATE;
	if (!state_is_healthy(s, from)) return ERR_NOT_MEMBER;
	if (a->id_count == 0) return ERR_INVALID_ACTION;
	if (a->number != s->progress.step - 1) return ERR_WRONG_STEP;
	const struct round *round = state_round_of_step(s, a->number);
	if (!round) return ERR_WRONG_STEP;
	uint8_t named[SET_SIZE], denied[SET_SIZE];
	struct filter_keys keys;
	struct key id;
	struct room left;
	uint32_t member;
	bool changed = false;
	state_room(s, &left);
	host_zero(named, sizeof named);
	host_zero(denied, sizeof denied);
	bloom_new_keys(&keys, round->seed);
	for (uint32_t i = 0; i < a->id_count; i++) {
		host_move(&id, a->ids + i * sizeof id, sizeof id);
		if (!round_member_index(round, &id, &member)) return ERR_NOT_MEMBER;
		if (member_set_has(named, member)) return ERR_INVALID_ACTION;
		member_set_add(named, member);
		if (!member_set_has(round->owners, member) || member_set_has(round->excused, member)) return ERR_FALSE_ACCUSATION;
		uint32_t score = round_score(round, &keys, &id);
		if (!round_proved_missing(round, score)) return ERR_FALSE_ACCUSATION;
		if (round_denied(round, score)) member_set_add(denied, member);
	}
	struct lookup clients = {s->epoch.clients.list, s->epoch.clients.count, 0};
	for (member = 0; member < round->member_count; member++) {
		if (!member_set_has(named, member)) continue;
		struct client *client = lookup_find(&clients, &round->members[member]);
		if (!client || client->state != HEALTHY || state_is_back(s, client)) continue;
		if (client_after_finding(client, &left, member_set_has(denied, member))) changed = true;
	}
	return changed ? ACCEPTED : ERR_DUPLICATE;
}
