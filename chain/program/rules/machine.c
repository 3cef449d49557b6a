// Ports core/coordinator/machine.go.

#include "coordinator.h"

// progress_fits ports the checks of State.brokenProgress and State.brokenEnd on a new state.
static bool progress_fits(const struct progress *p, uint32_t total_steps) {
	if (p->step == 0 || p->step > total_steps) return false;
	return p->data_index <= (p->step - 1ull) * UINT32_MAX && p->epoch < p->step;
}

// state_set_update applies the configuration and the model of an update, except for the checkpoint.
void state_set_update(struct state *s, const struct update *u) {
	s->config = u->config;
	s->model.max_seq_len = u->max_seq_len;
	s->model.cold_start_warmup_steps = u->cold_start_warmup_steps;
	s->model.definition_size = u->definition_size;
	host_zero(s->model.definition, MAX_DEFINITION_SIZE);
	host_move(s->model.definition, u->definition, u->definition_size);
}

// state_genesis ports Genesis.State.
enum code state_genesis(struct state *s, const uint8_t *bytes, uint64_t size) {
	struct genesis g;
	enum code refused = decode_genesis(&g, bytes, size);
	if (refused) return refused;
	if (!validate_run_id(g.run_id, g.run_id_length) || !is_origin(g.update.checkpoint.kind)) return ERR_INVALID_CONFIG;
	if (g.progress.epoch == 0 && g.progress.step == 0 && g.progress.data_index == 0) g.progress.step = 1;
	if (!progress_fits(&g.progress, g.update.config.total_steps)) return ERR_INVALID_CONFIG;
	struct slice seed[2] = {{"psyche/seed/v1", 14}, {g.run_id, g.run_id_length}};
	host_sha256(seed, 2, (uint8_t *)&s->seed_chain);
	s->magic = STATE_MAGIC;
	s->version = STATE_VERSION;
	s->run_id_length = (uint8_t)g.run_id_length;
	host_move(s->run_id, g.run_id, g.run_id_length);
	s->host = g.host;
	s->authority.main = key_is_zero(&g.main) ? g.host : g.main;
	s->authority.join = key_is_zero(&g.join) ? s->authority.main : g.join;
	s->authority.permissioned = g.permissioned;
	s->run_state = g.paused ? PAUSED : WAITING_FOR_MEMBERS;
	s->progress = g.progress;
	s->cold_start = g.progress.step > 1;
	s->origin_step = g.progress.step;
	s->position = g.progress.data_index;
	state_set_update(s, &g.update);
	state_mark(s, s->origin_step - 1, s->position);
	s->model.checkpoint = g.update.checkpoint;
	return ACCEPTED;
}

// state_current_round ports State.CurrentRound if a round is running, or during Cooldown the last
// round.
struct round *state_current_round(struct state *s) { return &s->epoch.rounds[s->epoch.round_count - 1]; }

// state_round_of_step ports State.RoundOfStep.
struct round *state_round_of_step(struct state *s, uint32_t step) {
	for (uint32_t i = 0; i < s->epoch.round_count; i++)
		if (s->epoch.rounds[i].step == step) return &s->epoch.rounds[i];
	return NULL;
}

// state_active ports State.active.
bool state_active(const struct state *s) {
	return s->run_state == ROUND_TRAIN || s->run_state == ROUND_WITNESS || s->run_state == COOLDOWN;
}

// state_member ports State.Member. It returns NULL for a client without an entry in the epoch.
struct client *state_member(struct state *s, const struct key *id) {
	int32_t i = index_of(&s->epoch.clients, id);
	return i < 0 ? NULL : &s->epoch.clients.list[i];
}

// state_healthy_count ports State.HealthyCount.
uint32_t state_healthy_count(const struct state *s) {
	uint32_t count = 0;
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) count += s->epoch.clients.list[i].state == HEALTHY;
	return count;
}

// state_is_healthy ports State.isHealthy.
bool state_is_healthy(struct state *s, const struct key *id) {
	const struct client *client = state_member(s, id);
	return client && client->state == HEALTHY;
}
