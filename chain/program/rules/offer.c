// Ports core/coordinator/offer.go.

#include "coordinator.h"

enum { LEVEL_GROWTH = 8, LEVEL_SLOW_GROWTH = 2, LEVEL_FALL = 16, LEVEL_DECLINE = 8, LEVEL_EXCUSE = 4 };

// state_offer ports State.offer.
enum code state_offer(struct state *s, const struct key *from, const struct action *a) {
	if (s->run_state != WARMUP && s->run_state != ROUND_TRAIN && s->run_state != ROUND_WITNESS) return ERR_WRONG_STATE;
	if (a->number != s->progress.step) return ERR_WRONG_STEP;
	struct client *client = state_member(s, from);
	if (!client || client->state != HEALTHY) return ERR_NOT_MEMBER;
	if (!s->config.shares_by_speed || a->level == 0) return ERR_INVALID_ACTION;
	if (client->offered || client->offer == a->level) return ERR_DUPLICATE;
	client->offer = a->level;
	client->offered = 1;
	return ACCEPTED;
}

// client_is_excused ports Client.isExcused.
static bool client_is_excused(const struct client *c, uint32_t level) {
	return (uint32_t)c->offer + LEVEL_EXCUSE < level && c->excuses < MAX_EXCUSES;
}

// round_awaits ports Round.awaits.
bool round_awaits(const struct round *r, uint32_t member, const struct client *c) {
	return c->lateness != SLOW && !client_is_excused(c, r->levels[member]);
}

// client_raise ports Client.raise.
static void client_raise(struct client *c, uint32_t level, uint32_t growth) {
	uint32_t raised = level + growth < c->offer ? level + growth : c->offer;
	if (raised > c->level) c->level = (uint8_t)raised;
}

// round_holders computes which witnesses of a round have each bit in their filters of participants.
static void round_holders(const struct round *r, uint32_t holders[FILTER_BITS]) {
	uint64_t row[MAX_WITNESSES];
	for (uint32_t w = 0; w < FILTER_WORDS; w++) {
		for (uint32_t i = 0; i < MAX_WITNESSES; i++) row[i] = i < r->witness_count ? r->witnesses[i].participants.word[w] : 0;
		bloom_transpose_word(w, row, holders);
	}
}

// round_outcomes ports Round.outcomes and returns bad.
static bool round_outcomes(const struct round *r, uint8_t outcomes[MAX_CLIENTS]) {
	uint32_t *holders = host_scratch(), owners = 0, denied = 0;
	struct filter_keys keys;
	struct filter_positions positions;
	round_holders(r, holders);
	bloom_new_keys(&keys, r->seed);
	for (uint32_t member = 0; member < r->member_count; member++) {
		outcomes[member] = NO_BATCH;
		if (!member_set_has(r->owners, member)) continue;
		owners++;
		bloom_positions(&keys, &r->members[member], &positions);
		uint32_t hold = UINT32_MAX;
		for (uint32_t i = 0; i < FILTER_HASHES; i++) hold &= holders[positions.bit[i]];
		uint32_t score = (uint32_t)__builtin_popcount(hold);
		if (score >= r->witnesses_needed) {
			outcomes[member] = RESULT_COUNTS;
		} else if (round_denied(r, score)) {
			outcomes[member] = RESULT_DENIED;
			denied++;
		} else {
			outcomes[member] = RESULT_UNPROVEN;
		}
	}
	return 3 * denied > (owners > 3 ? owners : 3);
}

// state_reference_level ports State.referenceLevel.
static uint32_t state_reference_level(const struct state *s) {
	const struct clients *members = &s->epoch.clients;
	uint16_t with[UINT8_MAX + 1];
	host_zero(with, sizeof with);
	for (uint32_t i = 0; i < members->count; i++) {
		uint32_t level = members->list[i].level;
		with[level == 0 ? UINT8_MAX : level]++;
	}
	return members->count == 0 ? UINT8_MAX : assign_reference(with, members->count);
}

// state_judge ports State.judge.
static void state_judge(struct state *s, struct round *round, const uint8_t outcomes[MAX_CLIENTS], bool bad, uint32_t reference) {
	struct lookup members = {s->epoch.clients.list, s->epoch.clients.count, 0};
	struct lookup exited = {s->epoch.exited.list, s->epoch.exited.count, 0};
	for (uint32_t member = 0; member < round->member_count; member++) {
		const struct key *id = &round->members[member];
		struct client *client = lookup_next(&members, id);
		if (!client) client = lookup_next(&exited, id); // before a search, because many members may have left
		if (!client) client = lookup_find(&members, id);
		if (!client) client = lookup_find(&exited, id);
		if (!client || client->level == 0 || round->levels[member] == 0) continue;
		uint32_t outcome = outcomes[member], level = round->levels[member];
		if (level > reference + SHARE_RANGE) level = reference + SHARE_RANGE;
		if (outcome > RESULT_COUNTS && client_is_excused(client, round->levels[member])) {
			client->excuses = (client->excuses + 1) & 3;
			member_set_add(round->excused, member);
		} else if (bad) {
			continue;
		} else if (outcome == RESULT_DENIED) {
			uint32_t fallen = level > LEVEL_FALL + 1 ? level - LEVEL_FALL : 1;
			if (fallen < client->level) client->level = (uint8_t)fallen;
		} else if (outcome == RESULT_UNPROVEN) {
			uint32_t declined = level > reference + LEVEL_DECLINE ? level - LEVEL_DECLINE : reference;
			if (declined < client->level) client->level = (uint8_t)declined;
		} else if (outcome == RESULT_COUNTS) {
			client_raise(client, level, client->lateness == ON_TIME ? LEVEL_GROWTH : LEVEL_SLOW_GROWTH);
		} else if (outcome == NO_BATCH) {
			client_raise(client, client->level, LEVEL_SLOW_GROWTH);
		}
	}
}

// seal ports the second half of State.seal for one list of members.
static void seal(struct clients *clients, uint32_t reference) {
	for (uint32_t i = 0; i < clients->count; i++) {
		struct client *client = &clients->list[i];
		client->offered = 0;
		if (client->level == 0) client->level = (uint8_t)reference;
		if (client->level > client->offer) client->level = client->offer;
	}
}

// state_seal ports State.requeue and State.seal, and computes the outcomes for both once. round is the round
// that ended, or NULL before the first round of an epoch.
void state_seal(struct state *s, struct round *round) {
	uint8_t outcomes[MAX_CLIENTS];
	bool quorum = round && round_has_quorum(round), bad = false;
	if (!s->config.shares_by_speed && !s->config.retry_lost) return;
	if (quorum) bad = round_outcomes(round, outcomes);
	if (s->config.retry_lost && round) state_requeue(s, round, quorum ? outcomes : NULL);
	if (!s->config.shares_by_speed) return;
	uint32_t reference = state_reference_level(s);
	if (quorum) state_judge(s, round, outcomes, bad, reference);
	seal(&s->epoch.clients, reference);
	seal(&s->epoch.exited, reference);
}
