// coordinator/audit.go.

#include "coordinator.h"

// set_count returns how many members a set has.
static uint32_t set_count(const uint8_t *set) {
	uint32_t count = 0;
	for (uint32_t i = 0; i < SET_SIZE; i++) count += (uint32_t)__builtin_popcount(set[i]);
	return count;
}

// set_member returns the member of a set before which it has so many, which it has to have.
static uint32_t set_member(const uint8_t *set, uint32_t before) {
	uint32_t member = 0;
	for (; member < MAX_CLIENTS - 1; member++)
		if (member_set_has(set, member) && before-- == 0) break;
	return member;
}

// state_audited_round is State.auditedRound.
bool state_audited_round(struct state *s, uint32_t step, struct audited *a) {
	a->round = state_round_of_step(s, step);
	a->before = state_round_of_step(s, step - 1);
	return a->round && a->before;
}

// audit_target is auditTarget: false for nobody.
bool audit_target(const struct audited *a, uint32_t member, uint32_t *target) {
	const struct round *round = a->round, *before = a->before;
	if (!member_set_has(round->idle, member)) return false;
	uint32_t owners = set_count(before->owners);
	if (owners == 0) return false;
	uint32_t rank = assign_position(member, round->member_count, round->batch_seed, SALT_COMMITTEE);
	uint32_t number = assign_target(round->seed, rank, owners);
	*target = set_member(before->owners, number);
	if (!key_equal(&before->members[*target], &round->members[member])) return true;
	*target = set_member(before->owners, (number + 1) % owners);
	return !key_equal(&before->members[*target], &round->members[member]);
}

// has_other_owner is hasOtherOwner.
static bool has_other_owner(const struct audited *a, uint32_t member) {
	if (set_count(a->before->owners) != 1) return true;
	return !key_equal(&a->before->members[set_member(a->before->owners, 0)], &a->round->members[member]);
}

// state_verifier is State.verifier.
static enum code state_verifier(struct state *s, uint32_t step, const struct key *id, struct round **round, uint32_t *member) {
	struct audited a;
	if (s->run_state != ROUND_TRAIN && s->run_state != ROUND_WITNESS) return ERR_WRONG_STATE;
	if (!state_audited_round(s, step, &a) || s->progress.step - step > 1) return ERR_WRONG_STEP;
	if (!round_member_index(a.round, id, member) || !state_is_healthy(s, id)) return ERR_NOT_MEMBER;
	if (!member_set_has(a.round->idle, *member) || !has_other_owner(&a, *member)) return ERR_NOT_ELECTED;
	*round = a.round;
	return ACCEPTED;
}

// state_seal_verdict is State.sealVerdict.
enum code state_seal_verdict(struct state *s, const struct key *from, const struct action *a) {
	struct round *round;
	uint32_t member;
	enum code refused = state_verifier(s, a->number, from, &round, &member);
	if (refused) return refused;
	if (member_set_has(round->sealed, member)) return ERR_DUPLICATE;
	member_set_add(round->sealed, member);
	return ACCEPTED;
}

// state_verdict is State.verdict.
enum code state_verdict(struct state *s, const struct key *from, const struct action *a) {
	struct round *round;
	uint32_t member;
	enum code refused = state_verifier(s, a->number, from, &round, &member);
	if (refused) return refused;
	if (member_set_has(round->judged, member)) return ERR_DUPLICATE;
	if (!member_set_has(round->sealed, member)) return ERR_INVALID_ACTION;
	member_set_add(round->judged, member);
	return ACCEPTED;
}

// state_find_idle_verifiers is State.findIdleVerifiers. The set is of the members of the epoch.
void state_find_idle_verifiers(struct state *s, const struct id_set *set) {
	struct audited a;
	struct room left;
	uint8_t running[SET_SIZE];
	if (!state_audited_round(s, s->progress.step - 1, &a)) return;
	const struct round *current = state_current_round(s);
	state_room(s, &left);
	host_zero(running, sizeof running);
	for (uint32_t i = 0; i < current->member_count; i++) {
		int32_t client = id_set_find(set, &current->members[i]);
		if (client >= 0) member_set_add(running, (uint32_t)client);
	}
	for (uint32_t member = 0; member < a.round->member_count; member++) {
		if (!member_set_has(a.round->idle, member) || member_set_has(a.round->judged, member)) continue;
		int32_t client = id_set_find(set, &a.round->members[member]);
		if (client < 0 || !member_set_has(running, (uint32_t)client) || !has_other_owner(&a, member)) continue;
		client_find_late(&s->epoch.clients.list[client], &left);
	}
}

// client_find_late is State.findLate of a member.
void client_find_late(struct client *client, struct room *left) {
	if (client->state == HEALTHY) client_after_finding(client, left, true);
}

// round_is_missing is Round.isMissing.
bool round_is_missing(const struct round *r, const struct key *id) {
	struct filter_keys keys;
	bloom_new_keys(&keys, r->seed);
	return !round_has_quorum(r) || round_proved_missing(r, round_score(r, &keys, id));
}
