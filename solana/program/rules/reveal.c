// coordinator/reveal.go.

#include "coordinator.h"

// client_reveals is Client.reveals.
bool client_reveals(const struct client *c, const struct key *value) {
	if (key_is_zero(&c->commitment)) return key_is_zero(value);
	struct slice message = {value, sizeof *value};
	struct key digest;
	host_sha256(&message, 1, (uint8_t *)&digest);
	return key_equal(&digest, &c->commitment);
}

// state_add_reveal is State.addReveal.
void state_add_reveal(struct state *s, struct client *client, const struct action *a) {
	if (!key_is_zero(&client->commitment)) {
		struct slice message[3] = {{"psyche/reveal/v1", 16}, {&client->id, sizeof client->id}, {&a->id, sizeof a->id}};
		struct key part;
		host_sha256(message, 3, (uint8_t *)&part);
		for (uint32_t i = 0; i < 4; i++) s->reveals.word[i] ^= part.word[i];
	}
	client->commitment = a->commitment;
}
