// coordinator/trial.go.

#include "coordinator.h"

enum { MIN_JURY = 2 };

static uint32_t trial_open_until(const struct trial *t) { return t->since + OPEN_ROUNDS; }

static uint32_t trial_vote_until(const struct trial *t) { return t->since + OPEN_ROUNDS + VOTE_ROUNDS; }

// trial_may_vote is Trial.MayVote.
static bool trial_may_vote(const struct trial *t, uint32_t step) {
	return t->jury_count > 0 && step <= trial_vote_until(t) && (!key_is_zero(&t->opening) || step > trial_open_until(t));
}

// trial_decides is Trial.decides.
static bool trial_decides(const struct trial *t, uint32_t votes) { return 3 * (uint32_t)__builtin_popcount(votes) >= 2 * t->jury_count; }

// state_trial is State.Trial: where the trial is, or -1 for a client that is not accused.
static int32_t state_trial(const struct state *s, const struct key *accused) {
	for (uint32_t i = 0; i < s->epoch.trial_count; i++)
		if (key_equal(&s->epoch.trials[i].accused, accused)) return (int32_t)i;
	return -1;
}

// fault_of_verifier is Fault.OfVerifier.
static bool fault_of_verifier(uint32_t fault) { return fault == FAULT_PRINTS || fault == FAULT_UNREVEALED; }

// fault_of_silence is Fault.OfSilence.
static bool fault_of_silence(uint32_t fault) { return fault == FAULT_UNOPENED || fault == FAULT_UNREVEALED; }

// client_complained is Client.complained.
static uint8_t *client_complained(struct client *c, uint32_t of) { return of == FAULT_UNREVEALED ? &c->unrevealed : &c->unopened; }

// state_may_know is State.mayKnow.
static enum code state_may_know(const struct action *a, const struct audited *audited, uint32_t accuser) {
	const struct round *round = audited->round, *before = audited->before;
	bool known = false, own = false;
	uint32_t member, result, target;
	if (!fault_of_verifier(a->fault)) {
		known = round_member_index(before, &a->id, &result);
	} else if (round_member_index(round, &a->id, &member) && member_set_has(round->judged, member)) {
		known = audit_target(audited, member, &result);
		own = known && key_equal(&before->members[result], &round->members[accuser]);
	}
	if (!own && !member_set_has(round->judged, accuser)) return ERR_NOT_ELECTED;
	if (!known) return ERR_FALSE_ACCUSATION;
	if (!own && (!audit_target(audited, accuser, &target) || target != result)) return ERR_FALSE_ACCUSATION;
	return round_is_missing(before, &before->members[result]) ? ERR_FALSE_ACCUSATION : ACCEPTED;
}

// state_may_accuse is State.MayAccuse.
static enum code state_may_accuse(struct state *s, const struct key *from, const struct action *a) {
	struct audited audited;
	uint32_t accuser;
	if (s->run_state != ROUND_TRAIN && s->run_state != ROUND_WITNESS) return ERR_WRONG_STATE;
	if (!state_audited_round(s, a->number, &audited) || s->progress.step - a->number > ACCUSE_ROUNDS) return ERR_WRONG_STEP;
	if (a->fault < FAULT_RESULT || a->fault > FAULT_UNREVEALED || key_equal(&a->id, from)) return ERR_INVALID_ACTION;
	if (!round_member_index(audited.round, from, &accuser) || !state_is_healthy(s, from) || !state_is_healthy(s, &a->id)) return ERR_NOT_MEMBER;
	enum code unknown = state_may_know(a, &audited, accuser);
	if (unknown) return unknown;
	for (uint32_t i = 0; i < s->epoch.trial_count; i++) {
		const struct trial *t = &s->epoch.trials[i];
		if (key_equal(&t->accused, from) || key_equal(&t->accuser, from)) return ERR_DUPLICATE;
		if (key_equal(&t->accused, &a->id) || key_equal(&t->accuser, &a->id)) return ERR_DUPLICATE;
	}
	if (fault_of_silence(a->fault) && *client_complained(state_member(s, from), a->fault)) return ERR_DUPLICATE;
	return s->epoch.trial_count >= MAX_TRIALS ? ERR_FULL : ACCEPTED;
}

// state_accuse is State.accuse.
enum code state_accuse(struct state *s, const struct key *from, const struct action *a) {
	enum code refused = state_may_accuse(s, from, a);
	if (refused) return refused;
	if (fault_of_silence(a->fault)) *client_complained(state_member(s, from), a->fault) = 1;
	struct trial *t = &s->epoch.trials[s->epoch.trial_count++];
	t->accused = a->id;
	t->accuser = *from;
	t->step = a->number;
	t->fault = a->fault;
	t->since = s->progress.step;
	return ACCEPTED;
}

// state_open is State.open.
enum code state_open(struct state *s, const struct key *from, const struct action *a) {
	if (!state_active(s)) return ERR_WRONG_STATE;
	int32_t i = state_trial(s, from);
	if (i < 0 || !state_is_healthy(s, from)) return ERR_NOT_MEMBER;
	struct trial *t = &s->epoch.trials[i];
	if (a->number != t->step || s->progress.step > trial_open_until(t)) return ERR_WRONG_STEP;
	if (t->jury_count == 0) return ERR_WRONG_STATE;
	if (key_is_zero(&a->id)) return ERR_INVALID_ACTION;
	if (!key_is_zero(&t->opening)) return ERR_DUPLICATE;
	t->opening = a->id;
	return ACCEPTED;
}

// state_expel is State.expel.
static void state_expel(struct state *s, const struct key *id, enum ejection_reason reason) {
	struct clients *lists[2] = {&s->epoch.clients, &s->epoch.exited};
	for (uint32_t l = 0; l < 2; l++) {
		int32_t i = index_of(lists[l], id);
		if (i >= 0) lists[l]->list[i].state = EJECTED;
	}
	int32_t i = index_of(&s->pending, id);
	if (i >= 0) {
		struct client client = s->pending.list[i];
		client.state = EJECTED;
		client_delete(&s->pending, (uint32_t)i);
		state_depart(s, &client);
	}
	if (!state_is_ejected(s, id)) state_keep_out(s, id, reason);
}

// state_end_trial is State.endTrial of one by its number.
static void state_end_trial(struct state *s, uint32_t i) { list_delete(s->epoch.trials, sizeof(struct trial), &s->epoch.trial_count, i); }

// state_decide is State.decide.
static void state_decide(struct state *s, uint32_t i) {
	const struct trial *t = &s->epoch.trials[i];
	if (trial_decides(t, t->guilty))
		state_expel(s, &t->accused, FOUND_GUILTY);
	else if (!trial_decides(t, t->innocent))
		return;
	else if (!fault_of_silence(t->fault) && !key_is_zero(&t->opening))
		state_expel(s, &t->accuser, ACCUSED_WRONGLY);
	state_end_trial(s, i);
}

// state_vote is State.vote.
enum code state_vote(struct state *s, const struct key *from, const struct action *a) {
	if (!state_active(s)) return ERR_WRONG_STATE;
	int32_t i = state_trial(s, &a->id);
	if (i < 0 || !state_is_healthy(s, from)) return ERR_NOT_MEMBER;
	struct trial *t = &s->epoch.trials[i];
	if (a->number != t->step || s->progress.step > trial_vote_until(t)) return ERR_WRONG_STEP;
	int32_t juror = index_of_key(t->jury, t->jury_count, from);
	if (juror < 0) return ERR_NOT_ELECTED;
	if (!trial_may_vote(t, s->progress.step)) return ERR_WRONG_STATE;
	if ((t->guilty | t->innocent) >> juror & 1) return ERR_DUPLICATE;
	if (a->flag)
		t->guilty |= 1u << juror;
	else
		t->innocent |= 1u << juror;
	state_decide(s, (uint32_t)i);
	return ACCEPTED;
}

// trial_draw_jury lets the first of a round's members in an order judge, of whom all that may be needed
// are called.
static void trial_draw_jury(struct trial *t, const struct round *round, const uint8_t *order, uint32_t called) {
	for (uint32_t i = 0; i < called && t->jury_count < MAX_JURY; i++) {
		const struct key *id = &round->members[order[i]];
		if (!key_equal(id, &t->accused) && !key_equal(id, &t->accuser)) t->jury[t->jury_count++] = *id;
	}
}

// state_draw_juries is State.drawJuries.
void state_draw_juries(struct state *s) {
	const struct round *round = state_current_round(s);
	uint8_t order[MAX_CLIENTS];
	uint32_t most = MAX_JURY + 2, called = round->member_count < most ? round->member_count : most;
	bool drawn = false;
	for (uint32_t i = 0; i < s->epoch.trial_count; i++) {
		struct trial *t = &s->epoch.trials[i];
		if (t->jury_count > 0) continue;
		if (!drawn) assign_in_order(round->member_count, called, round->seed, SALT_JURY, order);
		drawn = true;
		trial_draw_jury(t, round, order, called);
	}
	for (uint32_t i = 0; i < s->epoch.trial_count;)
		if (s->epoch.trials[i].jury_count < MIN_JURY)
			state_end_trial(s, i);
		else
			i++;
}

// state_is_gone is State.isGone of a client that is this member, or none.
static bool state_is_gone(struct state *s, const struct key *id, const struct client *client) {
	const struct round *round = state_current_round(s);
	struct filter_keys keys;
	uint32_t member;
	if (!round_member_index(round, id, &member) || !client || client->state != HEALTHY) return true;
	for (uint32_t i = 0; i < round->witness_count; i++)
		if (round->witnesses[i].member == member) return false;
	if (member_set_has(round->sealed, member)) return false;
	bloom_new_keys(&keys, round->seed);
	return round_score(round, &keys, id) < round->witnesses_needed;
}

// state_shut_out is State.shutOut of a client that is this member, or none.
static void state_shut_out(struct state *s, const struct key *id, struct client *member) {
	int32_t i = index_of(&s->epoch.exited, id);
	if (i >= 0) s->epoch.exited.list[i].returns = MAX_RETURNS;
	if (!member) return;
	member->returns = MAX_RETURNS;
	if (member->state == HEALTHY) member->state = DROPPED;
}

// state_trial_ends reports whether the time of a trial is over with the running round, and does what
// Go's State.endTrials does then. The set is of the members of the epoch.
static bool state_trial_ends(struct state *s, const struct trial *t, const struct id_set *set, struct room *left) {
	struct client *clients = s->epoch.clients.list;
	int32_t i = id_set_find(set, &t->accused);
	struct client *accused = i < 0 ? NULL : &clients[i];
	if (key_is_zero(&t->opening) && s->progress.step == trial_open_until(t) && state_is_gone(s, &t->accused, accused)) {
		state_shut_out(s, &t->accused, accused);
		return true;
	}
	if (s->progress.step < trial_vote_until(t)) return false;
	for (uint32_t juror = 0; juror < t->jury_count; juror++) {
		if ((t->guilty | t->innocent) >> juror & 1) continue;
		int32_t client = id_set_find(set, &t->jury[juror]);
		if (client >= 0) client_find_late(&clients[client], left);
	}
	return true;
}

// state_end_trials is State.endTrials.
void state_end_trials(struct state *s, const struct id_set *set) {
	struct room left;
	state_room(s, &left);
	for (uint32_t i = 0; i < s->epoch.trial_count;)
		if (state_trial_ends(s, &s->epoch.trials[i], set, &left))
			state_end_trial(s, i);
		else
			i++;
}
