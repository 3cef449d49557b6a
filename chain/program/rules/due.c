// Ports core/coordinator/due.go.

#include "coordinator.h"

// state_is_ahead ports State.isAhead. No trial begins later than the running phase.
static bool state_is_ahead(const struct state *s, uint64_t now) {
	return s->state_start > now || s->minimum_since > now || s->epoch.start_time > now;
}

// state_due ports State.Due. It returns false if no tick will change the state.
bool state_due(struct state *s, uint64_t now, uint64_t *at) {
	if (s->run_state == UNINITIALIZED || s->run_state == FINISHED) return false;
	*at = now;
	if (state_is_ahead(s, now)) return true;
	struct phase p;
	state_phase(s, &p);
	if (p.over) return true;
	if (p.endless) return false;
	if (p.unnoticed) {
		if (now == 0) *at = 1;
		return true;
	}
	uint64_t end = p.since + (p.most > 0 ? p.most : 1);
	if (end > now) *at = end;
	return end > p.since;
}

// phase_is_over ports phase.isOver.
bool phase_is_over(const struct phase *p, uint64_t now) { return p->over || elapsed(p->since, now, p->most); }

// state_phase ports State.phase.
void state_phase(struct state *s, struct phase *p) {
	uint32_t healthy = state_healthy_count(s);
	bool enough = state_enough_wait(s);
	p->over = p->endless = p->unnoticed = false;
	p->since = s->state_start;
	p->most = 0;
	switch (s->run_state) {
	case WAITING_FOR_MEMBERS:
		p->over = s->pending_pause || state_waits_again(s);
		p->endless = !enough;
		p->unnoticed = enough && s->minimum_since == 0;
		p->since = s->minimum_since;
		p->most = state_members_time(s);
		break;
	case WARMUP:
		p->over = s->pending_pause || healthy < s->epoch.clients.count || healthy < s->config.min_clients || state_ready_count(s) >= healthy;
		p->most = s->config.warmup_time;
		break;
	case ROUND_TRAIN:
		p->over = round_has_quorum(state_current_round(s)) || state_quorum_is_out_of_reach(s);
		p->most = s->config.max_round_train_time;
		break;
	case ROUND_WITNESS:
		p->over = state_no_witness_is_awaited(s);
		p->most = s->config.round_witness_time;
		break;
	case COOLDOWN:
		p->over = state_all_reported(s);
		p->most = s->config.cooldown_time;
		break;
	case PAUSED:
		p->over = s->closed || s->pending_resume;
		p->endless = true;
		break;
	}
}
