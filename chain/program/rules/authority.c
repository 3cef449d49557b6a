// Ports core/coordinator/authority.go.

#include "coordinator.h"

// authority_may_join ports Authority.MayJoin.
bool authority_may_join(const struct authority *a, const struct key *id) {
	if (!a->permissioned) return true;
	for (uint32_t i = 0; i < a->authorization_count; i++) {
		const struct authorization *x = &a->authorizations[i];
		if (key_equal(&x->grantee, id) || index_of_key(x->delegates, x->delegate_count, id) >= 0) return true;
	}
	return false;
}

// authority_index returns the index of a grantee's authorization, or -1.
static int32_t authority_index(const struct authority *a, const struct key *grantee) {
	for (uint32_t i = 0; i < a->authorization_count; i++)
		if (key_equal(&a->authorizations[i].grantee, grantee)) return (int32_t)i;
	return -1;
}

// authority_authorization ports Authority.Authorization. It returns NULL for a key without an
// authorization.
struct authorization *authority_authorization(struct authority *a, const struct key *grantee) {
	int32_t i = authority_index(a, grantee);
	return i < 0 ? NULL : &a->authorizations[i];
}

// state_set_paused ports State.setPaused.
enum code state_set_paused(struct state *s, const struct key *from, const struct action *a) {
	if (!key_equal(from, &s->authority.main)) return ERR_NOT_AUTHORISED;
	uint8_t *pending = &s->pending_pause;
	bool paused = a->flag;
	if (s->run_state == PAUSED) {
		pending = &s->pending_resume;
		paused = !paused;
	}
	if (*pending == paused) return ERR_DUPLICATE;
	*pending = paused;
	return ACCEPTED;
}

// state_keeps_checkpoint ports State.keepsCheckpoint.
static bool state_keeps_checkpoint(const struct state *s, const struct checkpoint *c) {
	struct checkpoint origin;
	checkpoint_origin(&s->model.checkpoint, &origin);
	return host_equal(c, &s->model.checkpoint, sizeof *c) || host_equal(c, &origin, sizeof *c);
}

// state_update_config ports State.updateConfig. Decoding has validated the update.
enum code state_update_config(struct state *s, const struct key *from, const struct action *a) {
	const struct update *u = &a->update;
	if (!key_equal(from, &s->authority.main)) return ERR_NOT_AUTHORISED;
	if (s->run_state != PAUSED) return ERR_WRONG_STATE;
	bool replaced = !state_keeps_checkpoint(s, &u->checkpoint);
	if (s->progress.step > u->config.total_steps) return ERR_INVALID_CONFIG;
	if (s->progress.data_index != 0 && u->max_seq_len != s->model.max_seq_len) return ERR_INVALID_CONFIG;
	if (replaced && !is_origin(u->checkpoint.kind)) return ERR_INVALID_CONFIG;
	state_set_update(s, u);
	host_zero(s->epoch.rounds, sizeof s->epoch.rounds);
	s->epoch.round_count = 0;
	if (!replaced) return ACCEPTED;
	s->model.checkpoint = u->checkpoint;
	host_zero(s->earlier, sizeof s->earlier);
	host_zero(s->uploads, sizeof s->uploads);
	s->earlier_count = s->upload_count = 0;
	s->origin_step = s->progress.step;
	host_zero(s->marks, sizeof s->marks);
	s->mark_count = 0;
	state_mark(s, s->origin_step - 1, s->progress.data_index);
	for (uint32_t i = 0; i < s->pending.count; i++) {
		s->pending.list[i].holds_model = 0;
		s->pending.list[i].holds_earlier = 0;
	}
	return ACCEPTED;
}

// checkpoint_origin ports Checkpoint.origin.
void checkpoint_origin(const struct checkpoint *c, struct checkpoint *origin) {
	*origin = *c;
	if (is_origin(c->kind)) return;
	origin->kind = c->origin;
	origin->origin = 0;
	origin->step = 0;
	host_zero(&origin->digest, sizeof origin->digest);
}

// state_withdraw_unauthorized ports State.withdrawUnauthorized, and marks members. The keys are
// in the changed authorization: the change affects the admission of no other key.
static void state_withdraw_unauthorized(struct state *s, const struct key *ids, uint32_t count) {
	struct key lost[2 * MAX_DELEGATES];
	uint32_t lost_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		bool may = authority_may_join(&s->authority, &ids[i]);
		if (!may) lost[lost_count++] = ids[i];
		struct client *member = state_member(s, &ids[i]);
		if (member) member->barred = !may;
	}
	for (uint32_t i = 0; lost_count > 0 && i < s->pending.count;) {
		if (index_of_key(lost, lost_count, &s->pending.list[i].id) < 0) {
			i++;
			continue;
		}
		struct client client = s->pending.list[i];
		client.state = WITHDRAWN;
		client_delete(&s->pending, i);
		state_depart(s, &client);
	}
}

// state_authorize ports State.authorize.
enum code state_authorize(struct state *s, const struct key *from, const struct action *a) {
	if (!key_equal(from, &s->authority.join)) return ERR_NOT_AUTHORISED;
	if (!s->authority.permissioned) return ERR_PERMISSIONLESS;
	return state_set_authorized(s, &a->id, NULL, a->flag);
}

// state_set_authorized ports State.setAuthorized, for at most one delegate.
enum code state_set_authorized(struct state *s, const struct key *grantee, const struct key *delegate, bool allowed) {
	struct authority *authority = &s->authority;
	int32_t i = authority_index(authority, grantee);
	if (allowed == (i >= 0)) return ERR_DUPLICATE;
	if (!allowed) {
		const struct authorization *x = &authority->authorizations[i];
		struct key ended[1 + MAX_DELEGATES];
		uint32_t count = 1 + x->delegate_count;
		ended[0] = x->grantee;
		host_move(ended + 1, x->delegates, sizeof x->delegates);
		list_delete(authority->authorizations, sizeof *x, &authority->authorization_count, (uint32_t)i);
		state_withdraw_unauthorized(s, ended, count);
		return ACCEPTED;
	}
	if (authority->authorization_count >= MAX_AUTHORIZATIONS || authority->grants == UINT32_MAX) return ERR_FULL;
	struct authorization *x = &authority->authorizations[authority->authorization_count++];
	x->grantee = *grantee;
	x->number = ++authority->grants;
	if (delegate) x->delegates[x->delegate_count++] = *delegate;
	state_withdraw_unauthorized(s, delegate ? delegate : grantee, 1); // clears the mark of a member that was barred
	return ACCEPTED;
}

// state_set_delegates ports State.setDelegates. Decoding has checked the number of delegates.
enum code state_set_delegates(struct state *s, const struct key *from, const struct action *a) {
	struct authorization *x = authority_authorization(&s->authority, from);
	if (!s->authority.permissioned) return ERR_PERMISSIONLESS;
	if (!x) return ERR_NOT_AUTHORISED;
	if (a->number != x->number) return ERR_WRONG_NUMBER;
	struct key changed[2 * MAX_DELEGATES]; // the new delegates, then the old delegates
	host_move(changed, a->ids, a->id_count * sizeof *changed);
	for (uint32_t i = 0; i < a->id_count; i++)
		if (key_equal(&changed[i], from) || index_of_key(changed, i, &changed[i]) >= 0) return ERR_INVALID_ACTION;
	uint64_t size = a->id_count * sizeof *changed;
	if (a->id_count == x->delegate_count && host_equal(changed, x->delegates, size)) return ERR_DUPLICATE;
	uint32_t count = a->id_count + x->delegate_count;
	host_move(changed + a->id_count, x->delegates, x->delegate_count * sizeof *changed);
	host_zero(x->delegates, sizeof x->delegates);
	host_move(x->delegates, changed, size);
	x->delegate_count = a->id_count;
	state_withdraw_unauthorized(s, changed, count);
	return ACCEPTED;
}

// state_is_known ports State.isKnown.
bool state_is_known(struct state *s, const struct key *id) {
	for (uint32_t l = 0; l < CLIENT_LISTS; l++)
		if (index_of(state_client_list(s, l), id) >= 0) return true;
	return false;
}

// state_keep_out ports State.keepOut.
static void state_keep_out(struct state *s, const struct key *id, enum ejection_reason reason) {
	struct authority *authority = &s->authority;
	uint32_t epochs = reason == BY_AUTHORITY ? 1 : s->config.ejection_epochs, until = s->progress.epoch + 1;
	if (authority->ejection_count == MAX_EJECTIONS)
		list_delete(authority->ejections, sizeof(struct ejection), &authority->ejection_count, 0);
	struct ejection *ejection = &authority->ejections[authority->ejection_count++];
	ejection->client = *id;
	ejection->until = until + (epochs < UINT32_MAX - until ? epochs : UINT32_MAX - until);
	ejection->reason = (uint8_t)reason;
}

// state_expel ports State.expel.
void state_expel(struct state *s, const struct key *id, enum ejection_reason reason) {
	int32_t i = index_of(&s->pending, id);
	if (i >= 0) {
		struct client client = s->pending.list[i];
		client_delete(&s->pending, (uint32_t)i);
		state_depart(s, &client);
	}
	struct clients *lists[3] = {&s->epoch.clients, &s->epoch.exited, &s->departed};
	for (uint32_t l = 0; l < 3; l++) {
		i = index_of(lists[l], id);
		if (i >= 0) lists[l]->list[i].state = EJECTED;
	}
	if (!state_is_ejected(s, id)) state_keep_out(s, id, reason);
}

// state_remove ports State.remove.
static enum code state_remove(struct state *s, const struct key *id, enum ejection_reason reason) {
	if (state_is_ejected(s, id) || !state_is_known(s, id)) return ERR_NOT_MEMBER;
	state_expel(s, id, reason);
	return ACCEPTED;
}

// state_eject ports State.eject.
enum code state_eject(struct state *s, const struct key *from, const struct action *a) {
	if (!key_equal(from, &s->authority.main)) return ERR_NOT_AUTHORISED;
	return state_remove(s, &a->id, BY_AUTHORITY);
}

// state_equivocate ports State.equivocate.
enum code state_equivocate(struct state *s, const struct key *from, const struct action *a) {
	const struct round *round = state_round_of_step(s, a->number);
	uint32_t member;
	if (!round) return ERR_WRONG_STEP;
	if (!round_member_index(round, &a->id, &member)) return ERR_NOT_MEMBER;
	if (!state_is_healthy(s, from) && index_of(&s->pending, from) < 0) return ERR_NOT_MEMBER;
	return state_remove(s, &a->id, TWO_RESULTS);
}

// state_is_ejected ports State.isEjected.
bool state_is_ejected(const struct state *s, const struct key *id) {
	for (uint32_t i = 0; i < s->authority.ejection_count; i++) {
		const struct ejection *e = &s->authority.ejections[i];
		if (key_equal(&e->client, id) && s->progress.epoch < e->until) return true;
	}
	return false;
}

// state_forget_ejections ports State.forgetEjections.
void state_forget_ejections(struct state *s) {
	struct authority *a = &s->authority;
	uint32_t kept = 0;
	for (uint32_t i = 0; i < a->ejection_count; i++)
		if (s->progress.epoch < a->ejections[i].until) a->ejections[kept++] = a->ejections[i];
	host_zero(&a->ejections[kept], (a->ejection_count - kept) * sizeof(struct ejection));
	a->ejection_count = kept;
}

// state_close ports State.close.
enum code state_close(struct state *s, const struct key *from) {
	if (!key_equal(from, &s->authority.main)) return ERR_NOT_AUTHORISED;
	if (s->run_state != PAUSED && s->run_state != FINISHED) return ERR_WRONG_STATE;
	s->closed = 1;
	s->pending_resume = 0;
	return ACCEPTED;
}
