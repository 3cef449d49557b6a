// Decoding: record/wire/action.go and record/wire/reader.go, the configuration and the model of
// core/coordinator/decode.go, and the genesis, which has no encoding in Go.

#include "coordinator.h"

// reader reads field by field until the first error. After an error every read returns zero.
struct reader {
	const uint8_t *rest;
	uint64_t size;
	bool failed;
};

// reader_take ports reader.take: it returns the next n bytes, or NULL after an error.
static const uint8_t *reader_take(struct reader *r, uint64_t n) {
	if (r->failed || n > r->size) {
		r->failed = true;
		return NULL;
	}
	const uint8_t *taken = r->rest;
	r->rest += n;
	r->size -= n;
	return taken;
}

static uint8_t reader_uint8(struct reader *r) {
	const uint8_t *b = reader_take(r, 1);
	return b ? b[0] : 0;
}

static uint16_t reader_uint16(struct reader *r) {
	const uint8_t *b = reader_take(r, 2);
	return b ? uint16_at(b) : 0;
}

static uint32_t reader_uint32(struct reader *r) {
	const uint8_t *b = reader_take(r, 4);
	return b ? uint32_at(b) : 0;
}

static uint64_t reader_uint64(struct reader *r) {
	const uint8_t *b = reader_take(r, 8);
	return b ? uint64_at(b) : 0;
}

// reader_bool ports reader.bool.
static bool reader_bool(struct reader *r) {
	uint8_t b = reader_uint8(r);
	if (b > 1) r->failed = true;
	return b == 1;
}

// reader_hash ports reader.hash.
static void reader_hash(struct reader *r, struct key *hash) {
	const uint8_t *b = reader_take(r, sizeof *hash);
	if (b) host_move(hash, b, sizeof *hash);
}

// reader_text ports reader.text.
static const uint8_t *reader_text(struct reader *r, uint32_t limit, uint32_t *length) {
	*length = reader_uint8(r);
	if (*length > limit) r->failed = true;
	return reader_take(r, *length);
}

// reader_ids ports reader.ids.
static void reader_ids(struct reader *r, uint32_t limit, struct action *a) {
	a->id_count = reader_uint16(r);
	if (a->id_count > limit || a->id_count * sizeof(struct key) != r->size) r->failed = true;
	a->ids = reader_take(r, a->id_count * sizeof(struct key));
}

// reader_join ports reader.join. It skips the name, which the rules do not use.
static void reader_join(struct reader *r, struct action *a) {
	a->number = reader_uint32(r);
	reader_hash(r, &a->commitment);
	if (r->failed || r->size == 0) return;
	reader_hash(r, &a->id);
	if (r->size > 0) {
		uint32_t length;
		reader_text(r, MAX_MEMBER_NAME, &length);
		if (length == 0) r->failed = true;
	} else if (key_is_zero(&a->id)) {
		r->failed = true;
	}
}

// reader_report ports coder.report.
static void reader_report(struct reader *r, struct action *a) {
	a->number = reader_uint32(r);
	reader_hash(r, &a->id);
	if (r->failed || r->size == 0) return;
	a->loss = reader_uint16(r);
	if (a->loss == 0) r->failed = true;
}

// reader_config ports decoder.config.
static void reader_config(struct reader *r, struct config *c) {
	c->warmup_time = reader_uint64(r);
	c->cooldown_time = reader_uint64(r);
	c->rounds_per_epoch = reader_uint32(r);
	c->epoch_time = reader_uint64(r);
	c->max_round_train_time = reader_uint64(r);
	c->round_witness_time = reader_uint64(r);
	c->waiting_for_members_extra_time = reader_uint64(r);
	c->global_batch_size_warmup_tokens = reader_uint64(r);
	c->global_batch_size_start = reader_uint32(r);
	c->global_batch_size_end = reader_uint32(r);
	c->total_steps = reader_uint32(r);
	c->init_min_clients = reader_uint16(r);
	c->min_clients = reader_uint16(r);
	c->witness_nodes = reader_uint16(r);
	c->verification_percent = reader_uint8(r);
	c->probation_steps = reader_uint32(r);
	c->ejection_epochs = reader_uint16(r);
	c->shares_by_speed = reader_bool(r);
	c->retry_lost = reader_bool(r);
}

// reader_model ports decoder.model. If the names together are too long to store, the model is
// invalid.
static bool reader_model(struct reader *r, struct update *u) {
	struct checkpoint *c = &u->checkpoint;
	u->max_seq_len = reader_uint32(r);
	u->cold_start_warmup_steps = reader_uint32(r);
	c->kind = reader_uint8(r);
	uint32_t repo_length, revision_length;
	const uint8_t *repo = reader_text(r, MAX_REPO_LENGTH, &repo_length);
	const uint8_t *revision = reader_text(r, MAX_REPO_LENGTH, &revision_length);
	reader_hash(r, &c->digest);
	c->step = reader_uint32(r);
	c->origin = reader_uint8(r);
	u->definition_size = reader_uint16(r);
	if (u->definition_size > MAX_DEFINITION_SIZE) r->failed = true;
	u->definition = reader_take(r, u->definition_size);
	if (r->failed || repo_length + revision_length > MAX_REPO_LENGTH) return false;
	c->repo_length = (uint8_t)repo_length;
	c->revision_length = (uint8_t)revision_length;
	host_move(c->name, repo, repo_length);
	host_move(c->name + repo_length, revision, revision_length);
	return true;
}

// reader_update_config ports reader.updateConfig: DecodeUpdateConfig, which requires the input to
// end after the model, and UpdateConfig.Validate.
static enum code reader_update_config(struct reader *r, struct update *u) {
	reader_config(r, &u->config);
	bool fits = reader_model(r, u);
	if (r->failed || r->size > 0) return ERR_MALFORMED;
	return fits && update_validate(u) ? ACCEPTED : ERR_INVALID_CONFIG;
}

// reader_location reads the location in a ReportUpload.
static void reader_location(struct reader *r, struct location *p) {
	p->kind = reader_uint8(r);
	p->repo = reader_text(r, MAX_REPO_LENGTH, &p->repo_length);
	p->revision = reader_text(r, MAX_REPO_LENGTH, &p->revision_length);
}

// The offsets, in a signed announcement, of the fields that an Equivocation compares:
// record/wire/equivocation.go.
enum {
	ANNOUNCED_RUN = 24,
	ANNOUNCED_STEP = ANNOUNCED_RUN + 32,
	ANNOUNCED_BLOB = ANNOUNCED_STEP + 20,
	ANNOUNCED_END = ANNOUNCED_BLOB + 69,
	ANNOUNCED_HEAD = 104,
};

// proof_equivocates ports equivocates.
static bool proof_equivocates(const struct proof *p) {
	for (uint32_t i = 0; i < 2; i++) {
		const uint8_t *message = p->message[i];
		if (p->size[i] < ANNOUNCED_END || !host_equal(message, "\x16psyche/announcement/v2\x02", ANNOUNCED_RUN)) return false;
		if (p->size[i] != ANNOUNCED_END + message[ANNOUNCED_END - 1] * (uint32_t)ANNOUNCED_HEAD) return false;
	}
	return host_equal(p->message[0] + ANNOUNCED_RUN, p->message[1] + ANNOUNCED_RUN, ANNOUNCED_BLOB - ANNOUNCED_RUN) &&
	       !host_equal(p->message[0] + ANNOUNCED_BLOB, p->message[1] + ANNOUNCED_BLOB, sizeof(struct key));
}

// reader_equivocation ports reader.equivocation.
static void reader_equivocation(struct reader *r, struct action *a) {
	reader_hash(r, &a->id);
	for (uint32_t i = 0; i < 2; i++) {
		a->proof.signature[i] = reader_take(r, 64);
		a->proof.size[i] = reader_uint16(r);
		if (a->proof.size[i] > ANNOUNCED_END + ANNOUNCED_HEAD) r->failed = true;
		a->proof.message[i] = reader_take(r, a->proof.size[i]);
	}
	if (r->failed) return;
	if (!proof_equivocates(&a->proof)) r->failed = true;
	else a->number = uint32_at(a->proof.message[0] + ANNOUNCED_STEP);
}

// reader_action ports reader.action, except for an UpdateConfig, whose refusal has two codes.
static void reader_action(struct reader *r, struct action *a) {
	switch (a->kind) {
	case JOIN:
		reader_join(r, a);
		break;
	case RETURN:
		a->number = reader_uint32(r);
		break;
	case READY:
		a->number = reader_uint32(r);
		reader_hash(r, &a->id);
		reader_hash(r, &a->commitment);
		break;
	case WITNESS_ROUND:
		a->number = reader_uint32(r);
		a->witness = reader_take(r, 2 * sizeof(struct filter) + 2 * sizeof(struct key));
		reader_hash(r, &a->id);
		a->loss = reader_uint16(r);
		a->speed = reader_uint32(r);
		break;
	case HEALTH_CHECK:
		a->number = reader_uint32(r);
		reader_ids(r, MAX_CLIENTS, a);
		break;
	case REPORT_CHECKPOINT:
		reader_report(r, a);
		break;
	case REPORT_UPLOAD:
		a->number = reader_uint32(r);
		reader_hash(r, &a->id);
		reader_location(r, &a->location);
		break;
	case WITHDRAW:
	case EJECT:
		reader_hash(r, &a->id);
		break;
	case SET_PAUSED:
		a->flag = reader_bool(r);
		break;
	case AUTHORIZE:
		reader_hash(r, &a->id);
		a->flag = reader_bool(r);
		break;
	case ADMIT:
		reader_hash(r, &a->grant);
		reader_hash(r, &a->id);
		a->flag = reader_bool(r);
		break;
	case SET_DELEGATES:
		a->number = reader_uint32(r);
		reader_ids(r, MAX_DELEGATES, a);
		break;
	case EQUIVOCATION:
		reader_equivocation(r, a);
		break;
	case ACCUSE:
		a->number = reader_uint32(r);
		reader_hash(r, &a->id);
		a->fault = reader_uint8(r);
		break;
	case VOTE:
		a->number = reader_uint32(r);
		reader_hash(r, &a->id);
		a->flag = reader_bool(r);
		break;
	case OFFER:
		a->number = reader_uint32(r);
		a->level = reader_uint8(r);
		break;
	case CLOSE:
		break;
	default:
		r->failed = true;
	}
}

// decode_action ports DecodeAction. It refuses an action as malformed or for an invalid
// configuration.
enum code decode_action(struct action *a, const uint8_t *bytes, uint64_t size) {
	struct reader r = {bytes, size, false};
	host_zero(a, sizeof *a);
	a->kind = reader_uint8(&r);
	if (a->kind == UPDATE_CONFIG) return reader_update_config(&r, &a->update);
	reader_action(&r, a);
	return r.failed || r.size > 0 ? ERR_MALFORMED : ACCEPTED;
}

// decode_genesis reads a genesis: host, main authority and join authority, bits for permissioned
// and paused, progress, run id, and then the fields of an UpdateConfig.
enum code decode_genesis(struct genesis *g, const uint8_t *bytes, uint64_t size) {
	struct reader r = {bytes, size, false};
	host_zero(g, sizeof *g);
	reader_hash(&r, &g->host);
	reader_hash(&r, &g->main);
	reader_hash(&r, &g->join);
	uint8_t bits = reader_uint8(&r);
	if (bits > 3) r.failed = true;
	g->permissioned = bits & 1;
	g->paused = bits >> 1;
	g->progress.epoch = reader_uint32(&r);
	g->progress.step = reader_uint32(&r);
	g->progress.data_index = reader_uint64(&r);
	g->run_id = reader_text(&r, UINT8_MAX, &g->run_id_length);
	return reader_update_config(&r, &g->update);
}
