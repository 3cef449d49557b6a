// Ports core/coordinator/audit.go.

#include "coordinator.h"

// state_seal_challenge ports State.sealChallenge, for the round that is over.
void state_seal_challenge(struct state *s, struct round *round) {
	struct slice message[3] = {{"psyche/audit/seed/v1", 20}, {&s->seed_chain, sizeof s->seed_chain}, {&round->challenge, sizeof round->challenge}};
	struct key seed;
	host_sha256(message, 3, (uint8_t *)&seed);
	round->challenge = seed;
}
