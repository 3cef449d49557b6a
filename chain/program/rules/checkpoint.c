// Ports core/coordinator/checkpoint.go.

#include "coordinator.h"

// client_reported is c.Report == model in Go.
static bool client_reported(const struct client *c, uint32_t step, const struct key *digest) {
	return c->report_step == step && key_equal(&c->report, digest);
}

// client_keep_claim ports Client.keepClaim.
void client_keep_claim(struct client *c, const struct checkpoint *from) {
	uint16_t claim = c->report_step != 0 && client_reported(c, from->step, &from->digest) ? c->held_out : 0;
	client_forget_report(c);
	c->held_out = claim;
}

// client_votes ports Client.votes.
static bool client_votes(const struct client *c, uint32_t step) {
	return c->state == HEALTHY || (c->state == WITHDRAWN && c->report_step == step);
}

// count_votes adds the number of a list's clients that vote, and the number of them that vote for
// the model.
static void count_votes(const struct clients *l, uint32_t step, const struct key *digest, uint32_t *voters, uint32_t *count) {
	for (uint32_t i = 0; i < l->count; i++) {
		if (!client_votes(&l->list[i], step)) continue;
		++*voters;
		*count += client_reported(&l->list[i], step, digest);
	}
}

// state_fewest_reports ports State.fewestReports.
uint32_t state_fewest_reports(const struct state *s) { return (state_seats(s) + 2) / 3; }

// state_agrees_on ports State.agreesOn.
static bool state_agrees_on(const struct state *s, uint32_t step, const struct key *digest) {
	uint32_t voters = 0, count = 0;
	count_votes(&s->epoch.clients, step, digest, &voters, &count);
	count_votes(&s->epoch.exited, step, digest, &voters, &count);
	return count >= assign_quorum(voters) && count >= state_fewest_reports(s);
}

// state_commit ports State.commit.
static void state_commit(struct state *s, uint32_t step, const struct key *digest) {
	state_mark_commit(s, step);
	s->epoch.commit_step = step;
	s->epoch.commit = *digest;
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		struct client *client = &s->epoch.clients.list[i];
		if (client_reported(client, step, digest)) client->holds_earlier = step;
	}
}

// state_report ports State.report.
enum code state_report(struct state *s, const struct key *from, const struct action *a) {
	const struct epoch *epoch = &s->epoch;
	if (!state_active(s)) return ERR_WRONG_STATE;
	if (a->number > s->progress.step || a->number <= epoch->start_step) return ERR_WRONG_STEP;
	if (s->run_state == COOLDOWN && a->number != s->progress.step) return ERR_WRONG_STEP;
	struct client *client = state_member(s, from);
	if (!client || client->state != HEALTHY) return ERR_NOT_MEMBER;
	uint32_t step = a->number - 1;
	if (step == epoch->commit_step && key_equal(&a->id, &epoch->commit) && client->holds_earlier != step) {
		client->holds_earlier = step;
		return ACCEPTED;
	}
	if (step <= client->report_step || step <= epoch->commit_step) return ERR_DUPLICATE;
	client->report_step = step;
	client->report = a->id;
	client->held_out = a->loss;
	if (s->run_state != COOLDOWN && state_agrees_on(s, step, &a->id)) state_commit(s, step, &a->id);
	return ACCEPTED;
}

// vote_by_majority continues a Boyer-Moore majority vote with one list. It counts the model that
// each voter reported last, for this step or an earlier one. A model that has a quorum for this
// step also has the majority of all these votes.
static const struct key *vote_by_majority(const struct clients *l, uint32_t step, const struct key *candidate, uint32_t *lead) {
	for (uint32_t i = 0; i < l->count; i++) {
		const struct client *client = &l->list[i];
		if (!client_votes(client, step)) continue;
		if (*lead == 0) candidate = &client->report;
		if (key_equal(candidate, &client->report))
			++*lead;
		else
			--*lead;
	}
	return candidate;
}

// state_agreed ports State.agreed. It returns NULL if there is no agreement. Go counts the votes
// for each model. A quorum is more than half of the voters, so one pass of the majority vote finds
// the only model that can have a quorum. The cost does not depend on the reports.
static const struct key *state_agreed(const struct state *s) {
	uint32_t lead = 0, last = s->progress.step - 1;
	const struct key *candidate = vote_by_majority(&s->epoch.clients, last, NULL, &lead);
	candidate = vote_by_majority(&s->epoch.exited, last, candidate, &lead);
	return candidate && state_agrees_on(s, last, candidate) ? candidate : NULL;
}

// state_has_reported ports State.hasReported.
bool state_has_reported(const struct state *s, const struct client *c) { return c->report_step == s->progress.step - 1; }

// state_all_reported ports State.allReported.
bool state_all_reported(const struct state *s) {
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		const struct client *client = &s->epoch.clients.list[i];
		if (client->state == HEALTHY && !state_has_reported(s, client)) return false;
	}
	return true;
}

// client_replaced ports Client.replaced.
static void client_replaced(struct client *c, uint32_t before, uint32_t commit, bool holds) {
	if (c->holds_model && (commit == 0 || c->holds_earlier != commit)) c->holds_earlier = before;
	c->holds_model = holds;
}

// state_record_model ports the second half of State.finalizeCheckpoint: the model of the last step,
// or the newest intermediate checkpoint, becomes the checkpoint.
static void state_record_model(struct state *s, uint32_t step, const struct key *digest, bool last) {
	struct checkpoint *checkpoint = &s->model.checkpoint;
	uint32_t before = checkpoint->step, commit = s->epoch.commit_step;
	if (is_origin(checkpoint->kind)) {
		checkpoint->origin = checkpoint->kind;
		checkpoint->kind = over_p2p(checkpoint->origin);
	} else {
		state_remember(s, before, &checkpoint->digest);
	}
	checkpoint->digest = *digest;
	checkpoint->step = step;
	if (last) state_mark(s, step, s->progress.data_index);
	if (commit != 0 && commit < step) state_remember(s, commit, &s->epoch.commit);
	s->epoch.commit_step = 0;
	host_zero(&s->epoch.commit, sizeof s->epoch.commit);
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		struct client *client = &s->epoch.clients.list[i];
		bool holds = (last && client_reported(client, step, digest)) || client->holds_earlier == step;
		client_replaced(client, before, commit, holds);
	}
	for (uint32_t i = 0; i < s->pending.count; i++) client_replaced(&s->pending.list[i], before, commit, false);
	for (uint32_t i = 0; i < s->upload_count; i++) s->uploads[i].tries = 0;
}

// state_finalize_checkpoint ports State.finalizeCheckpoint.
void state_finalize_checkpoint(struct state *s) {
	const struct key *agreed = state_agreed(s);
	uint32_t step = agreed ? s->progress.step - 1 : s->epoch.commit_step;
	struct key digest = agreed ? *agreed : s->epoch.commit;
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		struct client *client = &s->epoch.clients.list[i];
		if (!agreed || !client_reported(client, step, &digest)) client->optimizer_since = 0;
	}
	if (step != 0) state_record_model(s, step, &digest, agreed != NULL);
}
