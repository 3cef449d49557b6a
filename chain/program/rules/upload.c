// Ports core/coordinator/upload.go.

#include "coordinator.h"

enum {
	WAIT_FOR_MODEL_SHARE = 16, // see State.membersTime
	MOST_WAIT_FOR_MODEL = 24 * 3600000, // milliseconds
};

// printable ports the Go function of the same name.
static bool printable(const uint8_t *text, uint32_t length) {
	for (uint32_t i = 0; i < length; i++)
		if (text[i] <= ' ' || text[i] > '~') return false;
	return true;
}

// location_valid ports Location.valid.
static bool location_valid(const struct location *p) {
	if (p->repo_length == 0 || p->repo_length + p->revision_length > MAX_REPO_LENGTH) return false;
	if (!printable(p->repo, p->repo_length) || !printable(p->revision, p->revision_length)) return false;
	if (p->kind == CHECKPOINT_GCS) return true;
	if (p->kind != CHECKPOINT_HUB || p->revision_length != 40) return false;
	for (uint32_t i = 0; i < p->revision_length; i++) {
		uint8_t c = p->revision[i];
		if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) return false;
	}
	return true;
}

// state_is_recorded ports State.isRecorded.
static bool state_is_recorded(const struct state *s, uint32_t step, const struct key *digest) {
	const struct checkpoint *c = &s->model.checkpoint;
	if (!is_origin(c->kind) && c->step == step && key_equal(&c->digest, digest)) return true;
	for (uint32_t i = 0; i < s->earlier_count; i++)
		if (s->earlier[i].step == step && key_equal(&s->earlier[i].digest, digest)) return true;
	return false;
}

// state_seniority ports State.seniority.
static uint32_t state_seniority(struct state *s, const struct key *id) {
	if (state_has_office(s, id)) return 0;
	const struct client *client = state_member(s, id);
	int32_t waiting = client ? -1 : index_of(&s->pending, id);
	if (waiting >= 0) client = &s->pending.list[waiting];
	return client && !client_is_new(client) ? client->probation_until : UINT32_MAX;
}

// state_is_stale ports State.isStale.
static bool state_is_stale(struct state *s, const struct upload *u, uint32_t step) {
	if (!state_is_recorded(s, u->step, &u->digest)) return true;
	return u->step < step && !state_is_healthy(s, &u->reporter) && index_of(&s->pending, &u->reporter) < 0;
}

// state_upload_in_the_way ports State.uploadInTheWay. It returns MAX_UPLOADS if there is none.
static uint32_t state_upload_in_the_way(struct state *s, const struct key *from, uint32_t step) {
	const struct upload *uploads = s->uploads;
	uint32_t stale = MAX_UPLOADS, youngest = 0;
	for (uint32_t i = 0; i < s->upload_count; i++) {
		if (state_is_stale(s, &uploads[i], step) && (stale == MAX_UPLOADS || uploads[i].step < uploads[stale].step)) stale = i;
		if (uploads[i].since > uploads[youngest].since ||
		    (uploads[i].since == uploads[youngest].since && uploads[i].step < uploads[youngest].step))
			youngest = i;
	}
	if (stale < MAX_UPLOADS) return stale;
	return uploads[youngest].since > state_seniority(s, from) ? youngest : MAX_UPLOADS;
}

// state_upload_to_replace ports State.uploadToReplace. It sets replaced to MAX_UPLOADS if there is
// none.
static enum code state_upload_to_replace(struct state *s, const struct key *from, const struct action *a, uint32_t *replaced) {
	int32_t waiting = index_of(&s->pending, from);
	if (!state_is_healthy(s, from) && (waiting < 0 || !s->pending.list[waiting].holds_model)) return ERR_NOT_MEMBER;
	if (!location_valid(&a->location)) return ERR_INVALID_ACTION;
	if (!state_is_recorded(s, a->number, &a->id)) return ERR_UNRECORDED;
	*replaced = MAX_UPLOADS;
	for (uint32_t i = 0; i < s->upload_count; i++)
		if (key_equal(&s->uploads[i].reporter, from)) {
			*replaced = i;
			return s->uploads[i].step >= a->number ? ERR_DUPLICATE : ACCEPTED;
		}
	if (s->upload_count < MAX_UPLOADS) return ACCEPTED;
	*replaced = state_upload_in_the_way(s, from, a->number);
	return *replaced == MAX_UPLOADS ? ERR_FULL : ACCEPTED;
}

// state_report_upload ports State.reportUpload.
enum code state_report_upload(struct state *s, const struct key *from, const struct action *a) {
	uint32_t replaced;
	enum code refused = state_upload_to_replace(s, from, a, &replaced);
	if (refused) return refused;
	if (replaced < MAX_UPLOADS) list_delete(s->uploads, sizeof(struct upload), &s->upload_count, replaced);
	struct upload *u = &s->uploads[s->upload_count++];
	u->reporter = *from;
	u->since = state_seniority(s, from);
	u->digest = a->id;
	u->step = a->number;
	u->kind = a->location.kind;
	u->repo_length = (uint8_t)a->location.repo_length;
	u->revision_length = (uint8_t)a->location.revision_length;
	host_move(u->name, a->location.repo, a->location.repo_length);
	host_move(u->name + a->location.repo_length, a->location.revision, a->location.revision_length);
	return ACCEPTED;
}

// state_newest_available ports State.newestAvailable. If only_members is set, newcomers among the
// clients do not count.
static void state_newest_available(const struct state *s, const struct clients *clients, bool only_members, struct recorded *newest) {
	host_zero(newest, sizeof *newest);
	for (uint32_t i = 0; i < s->upload_count; i++)
		if (s->uploads[i].step > newest->step && s->uploads[i].tries < MAX_UPLOAD_TRIES) {
			newest->step = s->uploads[i].step;
			newest->digest = s->uploads[i].digest;
		}
	for (uint32_t i = 0; i < clients->count; i++)
		for (uint32_t e = 0; e < s->earlier_count; e++)
			if (s->earlier[e].step == clients->list[i].holds_earlier && s->earlier[e].step > newest->step &&
			    !(only_members && client_is_new(&clients->list[i])))
				*newest = s->earlier[e];
}

// state_seen ports State.seen.
static uint32_t state_seen(const struct state *s, uint32_t first) {
	uint32_t last = s->model.checkpoint.step;
	uint32_t seen = last + 1 > first ? last + 1 - first : 0;
	for (uint32_t i = 0; i < s->rollback_gap_count; i++) {
		uint32_t from = s->rollback_gaps[i].first > first ? s->rollback_gaps[i].first : first;
		uint32_t to = s->rollback_gaps[i].last < last ? s->rollback_gaps[i].last : last;
		if (from <= to) seen -= to - from + 1;
	}
	return seen;
}

// state_members_time ports State.membersTime.
uint64_t state_members_time(const struct state *s) {
	const struct checkpoint *checkpoint = &s->model.checkpoint;
	uint64_t wait = s->config.waiting_for_members_extra_time, most = s->config.max_round_train_time;
	if (is_origin(checkpoint->kind)) return wait;
	for (uint32_t i = 0; i < s->pending.count; i++)
		if (s->pending.list[i].holds_model && !client_is_new(&s->pending.list[i])) return wait;
	struct recorded newest;
	state_newest_available(s, &s->pending, true, &newest);
	if (newest.step >= checkpoint->step) return wait;
	uint64_t lost = state_seen(s, newest.step + 1 > s->origin_step ? newest.step + 1 : s->origin_step);
	if (most > MOST_WAIT_FOR_MODEL) most = MOST_WAIT_FOR_MODEL;
	most = lost * most / WAIT_FOR_MODEL_SHARE;
	if (most > MOST_WAIT_FOR_MODEL) most = MOST_WAIT_FOR_MODEL;
	if (wait < s->config.warmup_time) wait = s->config.warmup_time;
	return wait > most ? wait : most;
}

// state_waits_for_member ports State.WaitsForMember for a waiting run.
static bool state_waits_for_member(const struct state *s) {
	bool enough = is_origin(s->model.checkpoint.kind);
	for (uint32_t i = 0; i < s->upload_count; i++) enough |= s->uploads[i].tries < MAX_UPLOAD_TRIES;
	for (uint32_t i = 0; i < s->pending.count && !enough; i++)
		enough = s->pending.list[i].holds_model || !client_is_new(&s->pending.list[i]);
	return !enough;
}

// state_enough_wait ports State.enoughWait.
bool state_enough_wait(const struct state *s) {
	return s->pending.count >= s->config.init_min_clients && !state_waits_for_member(s);
}

// state_waits_again ports State.waitsAgain.
bool state_waits_again(const struct state *s) {
	if (s->minimum_since == 0 || state_enough_wait(s)) return false;
	return s->pending.count == 0 || state_waits_for_member(s) || state_members_time(s) <= s->config.waiting_for_members_extra_time;
}

// state_fall_back_if_model_is_gone ports State.fallBackIfModelIsGone. It runs after the members
// have their seats.
void state_fall_back_if_model_is_gone(struct state *s) {
	struct checkpoint *checkpoint = &s->model.checkpoint;
	if (is_origin(checkpoint->kind)) return;
	bool held = false, experienced = false;
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		held |= s->epoch.clients.list[i].holds_model;
		experienced |= s->epoch.clients.list[i].optimizer_since != 0;
	}
	if (held) {
		if (!experienced) s->cold_start = 1;
		return;
	}
	s->cold_start = 1;
	for (uint32_t i = 0; i < s->upload_count;)
		if (s->uploads[i].tries >= MAX_UPLOAD_TRIES)
			list_delete(s->uploads, sizeof(struct upload), &s->upload_count, i);
		else
			i++;
	struct recorded newest;
	state_newest_available(s, &s->epoch.clients, false, &newest);
	if (newest.step == 0) {
		struct checkpoint origin;
		checkpoint_origin(checkpoint, &origin);
		*checkpoint = origin;
		host_zero(s->earlier, sizeof s->earlier);
		s->earlier_count = 0;
		return;
	}
	checkpoint->step = newest.step;
	checkpoint->digest = newest.digest;
	for (uint32_t i = 0; i < s->earlier_count;)
		if (s->earlier[i].step >= newest.step)
			list_delete(s->earlier, sizeof(struct recorded), &s->earlier_count, i);
		else
			i++;
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		struct client *client = &s->epoch.clients.list[i];
		client->holds_model = client->holds_earlier == newest.step;
	}
}

// state_count_try ports State.countTry.
void state_count_try(struct state *s) {
	for (uint32_t i = 0; i < s->upload_count; i++) {
		struct upload *u = &s->uploads[i];
		if (key_equal(&u->digest, &s->model.checkpoint.digest) && u->tries < MAX_UPLOAD_TRIES) u->tries++;
	}
}

// state_remember ports State.remember for a model that is not an origin.
void state_remember(struct state *s, uint32_t step, const struct key *digest) {
	if (s->earlier_count == MAX_EARLIER) list_delete(s->earlier, sizeof(struct recorded), &s->earlier_count, 0);
	struct recorded *r = &s->earlier[s->earlier_count++];
	r->step = step;
	r->digest = *digest;
}

// state_recorded_as ports State.recordedAs. It sets whether a client holds the run's checkpoint, or
// else the step of the earlier checkpoint that the client holds.
void state_recorded_as(const struct state *s, const struct key *digest, struct client *c) {
	const struct checkpoint *checkpoint = &s->model.checkpoint;
	c->holds_model = !is_origin(checkpoint->kind) && key_equal(digest, &checkpoint->digest);
	for (uint32_t i = s->earlier_count; !c->holds_model && i > 0; i--)
		if (key_equal(&s->earlier[i - 1].digest, digest)) {
			c->holds_earlier = s->earlier[i - 1].step;
			return;
		}
}

// state_note_rollback_gap ports State.noteLapse.
void state_note_rollback_gap(struct state *s) {
	const struct checkpoint *c = &s->model.checkpoint;
	uint32_t first = is_origin(c->kind) ? s->origin_step : c->step + 1, next = s->progress.step;
	if (first >= next) return;
	for (uint32_t i = 0; i < s->rollback_gap_count;)
		if (s->rollback_gaps[i].first >= first)
			list_delete(s->rollback_gaps, sizeof(struct rollback_gap), &s->rollback_gap_count, i);
		else
			i++;
	if (s->rollback_gap_count == MAX_ROLLBACK_GAPS) list_delete(s->rollback_gaps, sizeof(struct rollback_gap), &s->rollback_gap_count, 0);
	struct rollback_gap *l = &s->rollback_gaps[s->rollback_gap_count++];
	l->first = first;
	l->last = next - 1;
	state_roll_back(s, first - 1);
}
