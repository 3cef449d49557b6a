// coordinator/health.go.

#include "coordinator.h"

// round_score is Round.score.
static uint32_t round_score(const struct round *r, const struct filter_keys *keys, const struct key *id) {
	struct filter_positions positions;
	uint32_t score = 0;
	bloom_positions(keys, id, &positions);
	for (uint32_t i = 0; i < r->witness_count; i++) score += bloom_contains_positions(&r->witnesses[i].participants, &positions);
	return score;
}

// round_proved_missing is Round.provedMissing.
static bool round_proved_missing(const struct round *r, const struct filter_keys *keys, const struct key *id) {
	uint32_t silent = (uint32_t)r->witnesses_elected - r->witness_count;
	return round_has_quorum(r) && round_score(r, keys, id) + silent < r->witnesses_needed;
}

// state_health_check is State.healthCheck. A client that is named twice is a member of the round
// at its second place, or the first has been refused.
enum code state_health_check(struct state *s, const struct key *from, const struct action *a) {
	if (!state_active(s)) return ERR_WRONG_STATE;
	if (!state_is_healthy(s, from)) return ERR_NOT_MEMBER;
	if (a->id_count == 0) return ERR_INVALID_ACTION;
	if (a->number != s->progress.step - 1) return ERR_WRONG_STEP;
	const struct round *round = state_round_of_step(s, a->number);
	if (!round) return ERR_WRONG_STEP;
	uint8_t named[SET_SIZE];
	struct filter_keys keys;
	struct key id;
	uint32_t member, dropped = 0;
	host_zero(named, sizeof named);
	bloom_new_keys(&keys, round->seed);
	for (uint32_t i = 0; i < a->id_count; i++) {
		host_move(&id, a->ids + i * sizeof id, sizeof id);
		if (!round_member_index(round, &id, &member)) return ERR_NOT_MEMBER;
		if (member_set_has(named, member)) return ERR_INVALID_ACTION;
		member_set_add(named, member);
		if (!member_set_has(round->owners, member) || !round_proved_missing(round, &keys, &id)) return ERR_FALSE_ACCUSATION;
	}
	struct lookup clients = {s->epoch.clients.list, s->epoch.clients.count, 0};
	for (member = 0; member < round->member_count; member++) {
		if (!member_set_has(named, member)) continue;
		struct client *client = lookup_find(&clients, &round->members[member]);
		if (client && client->state == HEALTHY) {
			client->state = DROPPED;
			dropped++;
		}
	}
	return dropped > 0 ? ACCEPTED : ERR_DUPLICATE;
}
