// Ports core/coordinator/tick.go.

#include "coordinator.h"

// adjust_time sets a time in the future to now.
static bool adjust_time(uint64_t *time, uint64_t now) {
	if (*time <= now) return false;
	*time = now;
	return true;
}

// state_adjust_clock ports State.adjustClock.
static bool state_adjust_clock(struct state *s, uint64_t now) {
	bool changed = adjust_time(&s->state_start, now);
	changed |= adjust_time(&s->minimum_since, now);
	changed |= adjust_time(&s->epoch.start_time, now);
	for (uint32_t i = 0; i < s->trial_count; i++) changed |= adjust_time(&s->trials[i].since_time, now);
	return changed;
}

// elapsed ports the Go function of the same name.
bool elapsed(uint64_t start, uint64_t now, uint64_t wait) { return now > start && now - start >= wait; }

// state_enter ports State.enter.
void state_enter(struct state *s, enum run_state to, uint64_t now) {
	s->run_state = (uint8_t)to;
	s->state_start = now;
}

// state_finish ports State.finish.
static void state_finish(struct state *s, uint64_t now) {
	state_note_rollback_gap(s);
	state_enter(s, FINISHED, now);
}

// state_wait_for_members ports State.waitForMembers.
static void state_wait_for_members(struct state *s, uint64_t now) {
	s->minimum_since = 0;
	state_enter(s, WAITING_FOR_MEMBERS, now);
}

// state_pause ports State.pause.
static void state_pause(struct state *s, uint64_t now) {
	s->pending_pause = 0;
	s->cold_start = 1;
	s->minimum_since = 0;
	state_enter(s, PAUSED, now);
}

// state_depart_exited applies State.depart to every client that exited and is not pending, and gives its
// offer and level to a client that is pending again. Go
// processes the clients one by one, with the same result. The new entry of a client replaces its
// older entry, if it exists. If there are too many entries, older entries are removed: first the
// clients that were never members, then the oldest. Two sets find the entries to replace without
// comparing all pairs.
static void state_depart_exited(struct state *s, uint64_t seed) {
	struct clients *exited = &s->epoch.exited, *departed = &s->departed;
	struct id_set set;
	uint32_t count = 0, kept = 0;
	new_id_set(&set, s->pending.list, s->pending.count, seed);
	for (uint32_t i = 0; i < exited->count; i++) {
		struct client *client = &exited->list[i], *waits = id_set_find(&set, &client->id);
		if (!waits) {
			client_forget_report(client);
			exited->list[count++] = *client;
		} else {
			waits->offer = client->offer;
			waits->level = client->level;
		}
	}
	new_id_set(&set, exited->list, count, seed);
	for (uint32_t i = 0; i < departed->count; i++)
		if (!id_set_find(&set, &departed->list[i].id)) departed->list[kept++] = departed->list[i];
	uint32_t over = kept + count > MAX_CLIENTS ? kept + count - MAX_CLIENTS : 0;
	uint32_t left = 0;
	for (uint32_t i = 0; i < kept; i++)
		if (over > 0 && client_is_new(&departed->list[i]))
			over--;
		else
			departed->list[left++] = departed->list[i];
	kept = left - over;
	host_move(departed->list, departed->list + over, kept * sizeof(struct client));
	host_move(departed->list + kept, exited->list, count * sizeof(struct client));
	departed->count = kept + count;
	host_zero(departed->list + departed->count, (MAX_CLIENTS - departed->count) * sizeof(struct client));
}

// state_start_epoch ports State.startEpoch. The draw seeds the sets, so that no client can choose
// keys that slow them down.
static void state_start_epoch(struct state *s, uint64_t now, const struct key *draw) {
	state_depart_exited(s, draw->word[0]);
	host_zero(&s->epoch, sizeof s->epoch);
	state_seat_pending(s);
	state_fall_back_if_model_is_gone(s);
	state_note_rollback_gap(s);
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		struct client *client = &s->epoch.clients.list[i];
		if (s->cold_start || client->optimizer_since == 0) client->optimizer_since = s->progress.step;
		if (client_is_new(client)) client->probation_until = state_probation_end(s);
		client->waited = 0;
		client_keep_claim(client, &s->model.checkpoint);
	}
	s->epoch.start_step = s->progress.step;
	s->epoch.start_time = now;
	s->epoch.cold_start = s->cold_start;
	s->minimum_since = 0;
	state_enter(s, WARMUP, now);
}

// state_tick_waiting_for_members ports State.tickWaitingForMembers.
static bool state_tick_waiting_for_members(struct state *s, uint64_t now, const struct key *draw) {
	if (s->pending_pause) {
		state_pause(s, now);
		return true;
	}
	if (!state_enough_wait(s)) {
		bool changed = state_waits_again(s);
		if (changed) s->minimum_since = 0;
		return changed;
	}
	if (s->minimum_since == 0) {
		s->minimum_since = now;
		return now != 0;
	}
	if (!elapsed(s->minimum_since, now, state_members_time(s))) return false;
	state_start_epoch(s, now, draw);
	return true;
}

// state_phase_is_over is s.phase().isOver(now) in Go.
static bool state_phase_is_over(struct state *s, uint64_t now) {
	struct phase p;
	state_phase(s, &p);
	return phase_is_over(&p, now);
}

// state_tick_warmup ports State.tickWarmup.
static bool state_tick_warmup(struct state *s, uint64_t now, const struct key *draw) {
	if (s->pending_pause) {
		state_members_to_pending(s);
		state_pause(s, now);
		return true;
	}
	bool changed = state_remove_leavers(s, 0);
	if (state_healthy_count(s) < s->config.min_clients) {
		state_members_to_pending(s);
		state_wait_for_members(s, now);
		return true;
	}
	if (!state_phase_is_over(s, now)) return changed;
	if (s->epoch.ready_count == 0) state_count_try(s);
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		struct client *client = &s->epoch.clients.list[i];
		client->holds_model = client->ready;
	}
	s->cold_start = 0;
	state_start_round(s, now, draw);
	return true;
}

// state_ready_count ports State.readyCount.
uint32_t state_ready_count(const struct state *s) {
	uint32_t count = 0;
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		const struct client *client = &s->epoch.clients.list[i];
		count += client->state == HEALTHY && client->ready;
	}
	return count;
}

// state_tick_round_train ports State.tickRoundTrain.
static bool state_tick_round_train(struct state *s, uint64_t now) {
	if (!state_phase_is_over(s, now)) return false;
	state_enter(s, ROUND_WITNESS, now);
	return true;
}

// state_silent_witnesses ports State.silentWitnesses. It returns a set of members and their number.
static uint32_t state_silent_witnesses(struct state *s, uint8_t silent[SET_SIZE]) {
	const struct round *round = state_current_round(s);
	uint32_t healthy = 0;
	if (round->witness_count == round->witnesses_elected) return 0;
	struct lookup clients = {s->epoch.clients.list, s->epoch.clients.count, 0};
	host_move(silent, round->elected, SET_SIZE);
	for (uint32_t i = 0; i < round->witness_count; i++) member_set_remove(silent, round->witnesses[i].member);
	for (uint32_t member = 0; member < round->member_count; member++) {
		if (!member_set_has(silent, member)) continue;
		const struct client *client = lookup_find(&clients, &round->members[member]);
		if (client && client->state == HEALTHY)
			healthy++;
		else
			member_set_remove(silent, member);
	}
	return healthy;
}

// state_quorum_is_out_of_reach ports State.quorumIsOutOfReach.
bool state_quorum_is_out_of_reach(struct state *s) {
	const struct round *round = state_current_round(s);
	uint32_t left = s->epoch.clients.count - state_healthy_count(s);
	if (round->witnesses_elected >= left + round->witnesses_needed) return false;
	uint8_t silent[SET_SIZE];
	return round->witness_count + state_silent_witnesses(s, silent) < round->witnesses_needed;
}

// state_no_witness_is_awaited ports State.noWitnessIsAwaited.
bool state_no_witness_is_awaited(struct state *s) {
	const struct round *round = state_current_round(s);
	uint8_t silent[SET_SIZE];
	if (state_silent_witnesses(s, silent) == 0) return true;
	if (!round_has_quorum(round)) return false;
	struct lookup clients = {s->epoch.clients.list, s->epoch.clients.count, 0};
	struct filter_keys keys;
	bloom_new_keys(&keys, round->seed);
	for (uint32_t member = 0; member < round->member_count; member++) {
		if (!member_set_has(silent, member)) continue;
		const struct key *id = &round->members[member];
		if (!round_awaits(round, member, lookup_find(&clients, id))) continue;
		if (!member_set_has(round->owners, member) || !round_denied(round, round_score(round, &keys, id))) return false;
	}
	return true;
}

// state_tick_round_witness ports State.tickRoundWitness.
static bool state_tick_round_witness(struct state *s, uint64_t now, const struct key *draw) {
	struct round *round = state_current_round(s);
	bool ends = !round_has_quorum(round) || state_ends_before(s, s->progress.step + 1);
	if (!state_phase_is_over(s, now)) return false;
	state_end_trials(s, now);
	state_remove_leavers(s, round->height);
	state_keep_findings(s);
	s->progress.step++;
	if (s->config.epoch_time != 0 && s->epoch.last_step == 0 && elapsed(s->epoch.start_time, now, s->config.epoch_time))
		s->epoch.last_step = s->progress.step + 1;
	if (ends) {
		state_seal(s, round);
		state_seal_challenge(s, round);
		state_enter(s, COOLDOWN, now);
		return true;
	}
	state_start_round(s, now, draw);
	if (state_current_round(s)->height % TERM_ROUNDS == 0) state_forgive(s);
	return true;
}

// state_forget_all_departed ports State.forgetAllDeparted.
static void state_forget_all_departed(struct state *s) {
	const struct checkpoint *c = &s->model.checkpoint;
	struct clients *departed = &s->departed;
	uint32_t kept = 0;
	if (!is_origin(c->kind) && c->step < s->epoch.start_step)
		for (uint32_t i = 0; i < departed->count; i++)
			if (!client_is_new(&departed->list[i])) departed->list[kept++] = departed->list[i];
	departed->count = kept;
	host_zero(departed->list + kept, (MAX_CLIENTS - kept) * sizeof(struct client));
}

// state_tick_cooldown ports State.tickCooldown.
static bool state_tick_cooldown(struct state *s, uint64_t now) {
	if (!state_phase_is_over(s, now)) return false;
	state_drop_silent(s);
	state_finalize_checkpoint(s);
	state_remove_leavers(s, state_current_round(s)->height);
	s->progress.epoch++;
	state_forget_all_departed(s);
	state_forget_ejections(s);
	if (s->progress.step > s->config.total_steps) {
		s->pending_pause = 0;
		state_finish(s, now);
		return true;
	}
	state_members_to_pending(s);
	if (s->pending_pause)
		state_pause(s, now);
	else
		state_wait_for_members(s, now);
	return true;
}

// state_tick_paused ports State.tickPaused.
static bool state_tick_paused(struct state *s, uint64_t now) {
	if (s->closed) {
		state_finish(s, now);
		return true;
	}
	if (!s->pending_resume) return false;
	s->pending_resume = 0;
	state_wait_for_members(s, now);
	return true;
}

// state_tick ports State.Tick.
bool state_tick(struct state *s, uint64_t now, const struct key *draw) {
	if (s->run_state == UNINITIALIZED || s->run_state == FINISHED) return false;
	bool changed = state_adjust_clock(s, now);
	switch (s->run_state) {
	case WAITING_FOR_MEMBERS: changed |= state_tick_waiting_for_members(s, now, draw); break;
	case WARMUP: changed |= state_tick_warmup(s, now, draw); break;
	case ROUND_TRAIN: changed |= state_tick_round_train(s, now); break;
	case ROUND_WITNESS: changed |= state_tick_round_witness(s, now, draw); break;
	case COOLDOWN: changed |= state_tick_cooldown(s, now); break;
	case PAUSED: changed |= state_tick_paused(s, now); break;
	}
	return changed;
}
