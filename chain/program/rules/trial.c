// Ports core/coordinator/trial.go.

#include "coordinator.h"

enum { MIN_JURY = 2, TRIAL_VERIFIES = 20, MOST_TRIAL_ROUNDS = 80 };

// trial_decides ports decides.
static bool trial_decides(const struct trial *t, uint32_t votes) { return 20 * votes >= 11u * t->jurors; }

// trial_bit returns the bit of a trial in client.juror and client.voted.
static uint8_t trial_bit(const struct trial *t) { return (uint8_t)(1u << t->slot); }

// state_trial ports State.Trial. It returns the index of the trial, or -1 if there is none.
static int32_t state_trial(const struct state *s, const struct key *accused, uint32_t step) {
	for (uint32_t i = 0; i < s->trial_count; i++)
		if (s->trials[i].step == step && key_equal(&s->trials[i].accused, accused)) return (int32_t)i;
	return -1;
}

// state_tries ports the part of State.MayAccuse that checks the existing trials.
static enum code state_tries(const struct state *s, const struct key *from, const struct action *a) {
	uint32_t of_one = 0;
	if (state_trial(s, &a->id, a->number) >= 0 || state_is_ejected(s, &a->id)) return ERR_DUPLICATE;
	for (uint32_t i = 0; i < s->trial_count; i++) {
		if (key_equal(&s->trials[i].accuser, from)) return ERR_DUPLICATE;
		of_one += key_equal(&s->trials[i].accused, &a->id);
	}
	if (of_one >= MAX_TRIALS_OF_ONE) return ERR_DUPLICATE;
	return s->trial_count >= MAX_TRIALS ? ERR_FULL : ACCEPTED;
}

// state_may_accuse ports State.MayAccuse.
static enum code state_may_accuse(struct state *s, const struct key *from, const struct action *a) {
	if (!state_active(s)) return ERR_WRONG_STATE;
	if (a->fault < FAULT_RESULT || a->fault > MAX_FAULT || key_equal(&a->id, from) || a->number == 0) return ERR_INVALID_ACTION;
	if (a->number >= s->progress.step) return ERR_WRONG_STEP;
	const struct client *accuser = state_member(s, from);
	if (!accuser || accuser->state != HEALTHY || !state_is_known(s, &a->id)) return ERR_NOT_MEMBER;
	if (state_on_probation(s, accuser, s->progress.step) || accuser->complaints >= MAX_COMPLAINTS) return ERR_NOT_ELECTED;
	return state_tries(s, from, a);
}

// state_free_slot ports State.freeSlot.
static uint8_t state_free_slot(const struct state *s) {
	uint32_t used = 0;
	uint8_t slot = 0;
	for (uint32_t i = 0; i < s->trial_count; i++) used |= trial_bit(&s->trials[i]);
	while (used >> slot & 1) slot++;
	return slot;
}

// state_accuse ports State.accuse.
enum code state_accuse(struct state *s, const struct key *from, const struct action *a) {
	enum code refused = state_may_accuse(s, from, a);
	if (refused) return refused;
	uint8_t slot = state_free_slot(s);
	struct trial *t = &s->trials[s->trial_count++];
	t->slot = slot;
	t->accused = a->id;
	t->accuser = *from;
	t->step = a->number;
	t->fault = a->fault;
	t->since = s->progress.step;
	t->since_time = s->state_start;
	return ACCEPTED;
}

// state_complain ports State.complain.
static void state_complain(struct state *s, const struct key *id) {
	for (uint32_t l = 0; l < CLIENT_LISTS; l++) {
		struct clients *clients = state_client_list(s, l);
		int32_t i = index_of(clients, id);
		if (i >= 0 && clients->list[i].complaints < UINT8_MAX) clients->list[i].complaints++;
	}
}

// state_clear_slots clears the bits of ended trials in all clients.
static void state_clear_slots(struct state *s, uint8_t ended) {
	uint8_t kept = (uint8_t)~ended;
	if (ended == 0) return;
	for (uint32_t l = 0; l < CLIENT_LISTS; l++) {
		struct clients *clients = state_client_list(s, l);
		for (struct client *c = clients->list, *end = c + clients->count; c < end; c++) {
			c->juror &= kept;
			c->voted &= kept;
		}
	}
}

// state_end_trial ports State.endTrial. i is the index of the trial in the list.
static void state_end_trial(struct state *s, uint32_t i) {
	state_clear_slots(s, trial_bit(&s->trials[i]));
	list_delete(s->trials, sizeof(struct trial), &s->trial_count, i);
}

// state_decide ends a trial if enough jurors agree. It is the end of State.vote.
static void state_decide(struct state *s, uint32_t i) {
	const struct trial ended = s->trials[i];
	bool guilty = trial_decides(&ended, ended.guilty);
	if (!guilty && !trial_decides(&ended, ended.innocent)) return;
	state_end_trial(s, i);
	if (guilty)
		state_expel(s, &ended.accused, FOUND_GUILTY);
	else if (ended.fault == FAULT_RESULT)
		state_expel(s, &ended.accuser, ACCUSED_WRONGLY);
	else
		state_complain(s, &ended.accuser);
}

// state_juror ports State.juror. It returns NULL for a client that is neither a healthy member nor
// pending.
static struct client *state_juror(struct state *s, const struct key *id) {
	struct client *member = state_member(s, id);
	if (member && member->state == HEALTHY) return member;
	int32_t i = index_of(&s->pending, id);
	return i < 0 ? NULL : &s->pending.list[i];
}

// state_vote ports State.vote.
enum code state_vote(struct state *s, const struct key *from, const struct action *a) {
	int32_t i = state_trial(s, &a->id, a->number);
	if (i < 0) return ERR_NOT_MEMBER;
	struct trial *t = &s->trials[i];
	struct client *juror = state_juror(s, from);
	if (!juror || !(juror->juror & trial_bit(t))) return ERR_NOT_ELECTED;
	if (juror->voted & trial_bit(t)) return ERR_DUPLICATE;
	juror->voted |= trial_bit(t);
	if (a->flag)
		t->guilty++;
	else
		t->innocent++;
	state_decide(s, (uint32_t)i);
	return ACCEPTED;
}

// state_end_in_vain ends a trial without a verdict.
static void state_end_in_vain(struct state *s, uint32_t i) {
	struct key accuser = s->trials[i].accuser;
	state_end_trial(s, i);
	state_complain(s, &accuser);
}

// state_draw_jury ports State.drawJury. order holds enough members of the round for a full jury,
// plus the accused and the accuser. When a round begins, its members are the members of the epoch.
static void state_draw_jury(struct state *s, struct trial *t, const uint8_t *order, uint32_t called) {
	struct client *clients = s->epoch.clients.list;
	int32_t accused = index_of(&s->epoch.clients, &t->accused), accuser = index_of(&s->epoch.clients, &t->accuser);
	uint8_t bit = trial_bit(t);
	for (uint32_t i = 0; i < called && t->jurors < MAX_JURY; i++) {
		if (order[i] == accused || order[i] == accuser) continue;
		clients[order[i]].juror |= bit;
		t->jurors++;
	}
}

// state_draw_juries ports State.drawJuries.
void state_draw_juries(struct state *s) {
	const struct round *round = state_current_round(s);
	uint8_t order[MAX_CLIENTS];
	uint32_t most = MAX_JURY + 2, called = round->member_count < most ? round->member_count : most;
	bool drawn = false;
	for (uint32_t i = 0; i < s->trial_count;) {
		struct trial *t = &s->trials[i];
		if (t->jurors == 0) {
			if (!drawn) assign_in_order(round->member_count, called, round->seed, SALT_JURY, order);
			drawn = true;
			state_draw_jury(s, t, order, called);
		}
		if (t->jurors < MIN_JURY)
			state_end_in_vain(s, i);
		else
			i++;
	}
}

// config_trial_rounds ports Config.TrialRounds.
static uint32_t config_trial_rounds(const struct config *c) {
	if (!c->shares_by_speed || c->verification_percent == 0) return TRIAL_ROUNDS;
	uint32_t rounds = 100 * TRIAL_VERIFIES / c->verification_percent;
	return rounds < MOST_TRIAL_ROUNDS ? rounds : MOST_TRIAL_ROUNDS;
}

// state_end_trials ports State.endTrials, but scans the clients once for all trials that end. No
// trial begins in the future, because state_adjust_clock corrects such times.
void state_end_trials(struct state *s, uint64_t now) {
	uint32_t kept = 0, count = s->trial_count, rounds = config_trial_rounds(&s->config);
	uint8_t ended = 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct trial *t = &s->trials[i];
		if (s->progress.step - t->since < rounds || now - t->since_time < TRIAL_TIME) {
			s->trials[kept++] = *t;
			continue;
		}
		ended |= trial_bit(t);
		state_complain(s, &t->accuser);
	}
	host_zero(&s->trials[kept], (count - kept) * sizeof(struct trial));
	s->trial_count = kept;
	state_clear_slots(s, ended);
}
