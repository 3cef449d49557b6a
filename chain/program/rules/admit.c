// Ports core/coordinator/admit.go.

#include "coordinator.h"

// admit_grantee ports Admit.Grantee.
static void admit_grantee(const struct key *grant, const struct key *id, struct key *grantee) {
	struct slice message[3] = {{"psyche/grant/v1", 15}, {grant, sizeof *grant}, {id, sizeof *id}};
	host_sha256(message, 3, (uint8_t *)grantee);
}

// state_admit ports State.admit.
enum code state_admit(struct state *s, const struct key *from, const struct action *a) {
	struct key grantee;
	if (!s->authority.permissioned) return ERR_PERMISSIONLESS;
	if (a->flag && !key_equal(from, &a->id)) return ERR_NOT_AUTHORISED;
	admit_grantee(&a->grant, &a->id, &grantee);
	return state_set_authorized(s, &grantee, &a->id, a->flag);
}

// authority_granted ports the length of Authority.Granted, without a client.
uint32_t authority_granted(const struct authority *a, const struct key *grant, const struct key *without) {
	uint32_t count = 0;
	for (uint32_t i = 0; i < a->authorization_count; i++) {
		const struct authorization *x = &a->authorizations[i];
		struct key grantee;
		if (x->delegate_count != 1 || key_equal(&x->delegates[0], without)) continue;
		admit_grantee(grant, &x->delegates[0], &grantee);
		if (key_equal(&grantee, &x->grantee)) count++;
	}
	return count;
}
