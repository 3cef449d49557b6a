// Ports core/coordinator/next.go.

#include "coordinator.h"

// state_is_abandoned ports State.isAbandoned.
static bool state_is_abandoned(const struct state *s, uint32_t step) {
	uint32_t gone = 0, height = step - s->epoch.start_step;
	for (uint32_t i = 0; i < s->epoch.exited.count; i++) gone += s->epoch.exited.list[i].exited_height + STORED_ROUNDS < height;
	return state_seats(s) - gone < state_fewest_reports(s);
}

// state_ends_before ports State.endsBefore.
bool state_ends_before(const struct state *s, uint32_t step) {
	const struct config *c = &s->config;
	return (c->rounds_per_epoch != 0 && step - s->epoch.start_step >= c->rounds_per_epoch) ||
	       (s->epoch.last_step != 0 && step > s->epoch.last_step) || state_healthy_count(s) < c->min_clients ||
	       step > c->total_steps || s->pending_pause || state_is_abandoned(s, step);
}

// state_round_of ports State.roundOf. It writes to a zeroed round.
static void state_round_of(struct state *s, uint32_t step, struct round *round) {
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		const struct client *client = &s->epoch.clients.list[i];
		if (client->state != HEALTHY) continue;
		if (s->config.shares_by_speed) round->levels[round->member_count] = client->level;
		round->members[round->member_count++] = client->id;
	}
	if (s->config.shares_by_speed && s->config.verification_percent > 0) assign_cut_fastest(round->levels, round->member_count);
	round->height = step - s->epoch.start_step;
	round->step = step;
	round->batch_seed = s->seed_chain.word[1];
	round->data_index = s->progress.data_index;
	round->batch_size = config_batch_size(&s->config, s->progress.data_index, s->model.max_seq_len);
	assign_owners(round, s->config.verification_percent, round->owners);
	state_warm(s, round);
	round->position = s->position;
	state_retries(s, round);
}

// state_mix_seed ports State.mixSeed.
static uint64_t state_mix_seed(struct state *s, const struct key *draw) {
	struct slice message[4] = {
		{&s->seed_chain, sizeof s->seed_chain}, {draw, sizeof *draw}, {&s->progress.step, sizeof s->progress.step},
		{&s->reveals, sizeof s->reveals},
	};
	struct key chain;
	host_sha256(message, 4, (uint8_t *)&chain);
	s->seed_chain = chain;
	return chain.word[0];
}

// state_start_round ports State.startRound. It frees a slot first, so that the new round is built
// in place.
void state_start_round(struct state *s, uint64_t now, const struct key *draw) {
	struct epoch *epoch = &s->epoch;
	if (epoch->round_count == STORED_ROUNDS) list_delete(epoch->rounds, sizeof(struct round), &epoch->round_count, 0);
	struct round *round = &epoch->rounds[epoch->round_count++];
	state_round_of(s, s->progress.step, round);
	state_take(s, round);
	state_seal(s, epoch->round_count > 1 ? round - 1 : NULL);
	round->seed = state_mix_seed(s, draw);
	if (epoch->round_count > 1) state_seal_challenge(s, round - 1);
	round_elected_set(round, &s->config, round->elected);
	uint32_t elected = assign_elected_witnesses(round->member_count, s->config.witness_nodes);
	round->witnesses_elected = (uint16_t)elected;
	round->witnesses_needed = (uint16_t)assign_quorum(elected);
	for (uint32_t i = 0; i < s->pending.count; i++) s->pending.list[i].waited = 1;
	state_enter(s, ROUND_TRAIN, now);
	state_draw_juries(s);
}
