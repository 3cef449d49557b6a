// core/coordinator/epoch.go.

#include "coordinator.h"

// state_remove_leavers is State.removeLeavers. Marks are only of members.
bool state_remove_leavers(struct state *s, uint32_t height) {
	struct clients *clients = &s->epoch.clients;
	uint32_t kept = 0, count = clients->count;
	for (uint32_t i = 0; i < count; i++) {
		struct client *client = &clients->list[i];
		if (client->state == HEALTHY) {
			if (kept != i) clients->list[kept] = *client;
			kept++;
			continue;
		}
		client->exited_height = height;
		client->ready = client->barred = 0;
		client->report = 0;
		client_add(&s->epoch.exited, client);
	}
	host_zero(&clients->list[kept], (count - kept) * sizeof(struct client));
	clients->count = kept;
	return kept != count;
}

// state_members_to_pending is State.membersToPending.
void state_members_to_pending(struct state *s) {
	struct clients *clients = &s->epoch.clients, *pending = &s->pending;
	for (uint32_t i = 0; i < clients->count; i++) {
		struct client *client = &clients->list[i];
		if (client->state == HEALTHY && client->barred) client->state = WITHDRAWN;
	}
	state_remove_leavers(s, s->epoch.round_count > 0 ? state_current_round(s)->height : 0);
	for (uint32_t i = 0; i < clients->count; i++) {
		struct client *client = &clients->list[i];
		client->active = client->ready = 0;
		client->lateness = ON_TIME;
		client->returns = client->complaints = 0;
		client->report = 0;
	}
	state_make_room(s, MAX_CLIENTS - clients->count);
	host_move(&pending->list[clients->count], pending->list, pending->count * sizeof(struct client));
	host_move(pending->list, clients->list, clients->count * sizeof(struct client));
	pending->count += clients->count;
	host_zero(clients, sizeof *clients);
	host_zero(s->epoch.ready, sizeof s->epoch.ready);
	s->epoch.ready_count = 0;
}

// state_drop_silent is State.dropSilent.
void state_drop_silent(struct state *s) {
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		struct client *client = &s->epoch.clients.list[i];
		if (client->state == HEALTHY && (!client->active || (client->lateness != ON_TIME && !client->report))) client->state = DROPPED;
	}
}

// state_all_reported is State.allReported.
bool state_all_reported(const struct state *s) {
	uint32_t healthy = 0, reported = 0;
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		const struct client *client = &s->epoch.clients.list[i];
		if (client->state != HEALTHY) continue;
		healthy++;
		reported += client->report != 0;
	}
	return reported == healthy;
}

// reported_digest returns what a client reported, or NULL.
static const struct key *reported_digest(const struct state *s, const struct client *client) {
	return client->report ? &s->epoch.reports[client->report - 1].digest : NULL;
}

// votes is State.votes.
static bool votes(const struct client *client) {
	return client->state == HEALTHY || (client->state == WITHDRAWN && client->report);
}

// state_reports_needed is State.reportsNeeded.
static uint32_t state_reports_needed(const struct state *s) {
	const struct clients *clients = &s->epoch.clients;
	uint32_t voters = 0, third = (state_seats(s) + 2) / 3;
	for (uint32_t i = 0; i < clients->count; i++) voters += votes(&clients->list[i]);
	uint32_t quorum = assign_quorum(voters), least = s->config.min_clients < 2 ? s->config.min_clients : 2;
	if (third > least) least = third;
	return quorum > least ? quorum : least;
}

// state_agreed_digest is State.agreedDigest: NULL when there is no agreement. Go counts the votes
// for each digest. A quorum is more than half of those that vote, so that a vote by majority
// finds the only digest that can have one in a single pass: no list of reports makes this dear.
static const struct key *state_agreed_digest(const struct state *s) {
	const struct clients *clients = &s->epoch.clients;
	const struct key *candidate = NULL;
	uint32_t lead = 0, count = 0;
	for (uint32_t i = 0; i < clients->count; i++) {
		const struct key *digest = reported_digest(s, &clients->list[i]);
		if (!digest || !votes(&clients->list[i])) continue;
		if (lead == 0) candidate = digest;
		if (key_equal(candidate, digest))
			lead++;
		else
			lead--;
	}
	for (uint32_t i = 0; candidate && i < clients->count; i++) {
		const struct key *digest = reported_digest(s, &clients->list[i]);
		count += digest && votes(&clients->list[i]) && key_equal(digest, candidate);
	}
	return candidate && count >= state_reports_needed(s) ? candidate : NULL;
}

// state_settle_checkpoint is State.settleCheckpoint.
void state_settle_checkpoint(struct state *s) {
	const struct key *agreed = state_agreed_digest(s);
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		struct client *client = &s->epoch.clients.list[i];
		const struct key *digest = reported_digest(s, client);
		bool holds = agreed && digest && key_equal(digest, agreed);
		if (!holds) client->optimizer_since = 0;
		if (agreed) client->holds_model = holds;
	}
	if (!agreed) return;
	struct checkpoint *checkpoint = &s->model.checkpoint;
	state_remember(s, checkpoint);
	if (is_origin(checkpoint->kind)) {
		checkpoint->origin = checkpoint->kind;
		checkpoint->kind = over_p2p(checkpoint->origin);
	}
	checkpoint->digest = *agreed;
	checkpoint->step = s->progress.step - 1;
	for (uint32_t i = 0; i < s->pending.count; i++) s->pending.list[i].holds_model = 0;
	for (uint32_t i = 0; i < s->upload_count; i++) s->uploads[i].tries = 0;
}
