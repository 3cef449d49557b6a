// Ports core/coordinator/reveal.go.

#include "coordinator.h"

// client_reveals ports Client.reveals.
bool client_reveals(const struct client *c, const struct key *value) {
	if (key_is_zero(&c->commitment)) return key_is_zero(value);
	struct slice message = {value, sizeof *value};
	struct key digest;
	host_sha256(&message, 1, (uint8_t *)&digest);
	return key_equal(&digest, &c->commitment);
}

// mix_reveal ports mixReveal.
static void mix_reveal(struct key *into, const struct key *id, const struct key *value) {
	struct slice message[3] = {{"psyche/reveal/v1", 16}, {id, sizeof *id}, {value, sizeof *value}};
	struct key part;
	host_sha256(message, 3, (uint8_t *)&part);
	for (uint32_t i = 0; i < 4; i++) into->word[i] ^= part.word[i];
}

// state_add_reveal ports State.addReveal.
void state_add_reveal(struct state *s, struct client *client, const struct action *a) {
	if (!key_is_zero(&client->commitment)) mix_reveal(&s->reveals, &client->id, &a->id);
	client->commitment = a->commitment;
}

// round_add_reveal ports Round.addReveal.
bool round_add_reveal(struct round *r, struct client *client, const struct key *value) {
	if (key_is_zero(value)) return true;
	if (!client_reveals(client, value)) return false;
	mix_reveal(&r->challenge, &client->id, value);
	client->commitment = *value;
	return true;
}
