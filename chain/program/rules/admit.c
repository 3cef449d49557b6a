// Ports core/coordinator/admit.go.

#include "coordinator.h"

// admit_grantee ports Admit.Grantee.
static void admit_grantee(const struct action *a, struct key *grantee) {
	struct slice message[3] = {{"psyche/grant/v1", 15}, {&a->grant, sizeof a->grant}, {&a->id, sizeof a->id}};
	host_sha256(message, 3, (uint8_t *)grantee);
}

// state_admit ports State.admit.
enum code state_admit(struct state *s, const struct key *from, const struct action *a) {
	struct key grantee;
	if (!s->authority.permissioned) return ERR_PERMISSIONLESS;
	if (a->flag && !key_equal(from, &a->id)) return ERR_NOT_AUTHORISED;
	admit_grantee(a, &grantee);
	return state_set_authorized(s, &grantee, &a->id, a->flag);
}
