// Ports core/coordinator/epoch.go.

#include "coordinator.h"

// state_remove_leavers ports State.removeLeavers. Only members have marks.
bool state_remove_leavers(struct state *s, uint32_t height) {
	struct clients *clients = &s->epoch.clients;
	uint32_t kept = 0, count = clients->count;
	for (uint32_t i = 0; i < count; i++) {
		struct client *client = &clients->list[i];
		if (client->state == HEALTHY) {
			if (kept != i) clients->list[kept] = *client;
			kept++;
			continue;
		}
		client->exited_height = height;
		client->ready = client->barred = 0;
		client_add(&s->epoch.exited, client);
	}
	host_zero(&clients->list[kept], (count - kept) * sizeof(struct client));
	clients->count = kept;
	return kept != count;
}

// state_members_to_pending ports State.membersToPending.
void state_members_to_pending(struct state *s) {
	struct clients *clients = &s->epoch.clients, *pending = &s->pending;
	for (uint32_t i = 0; i < clients->count; i++) {
		struct client *client = &clients->list[i];
		if (client->state == HEALTHY && client->barred) client->state = WITHDRAWN;
	}
	state_remove_leavers(s, s->epoch.round_count > 0 ? state_current_round(s)->height : 0);
	for (uint32_t i = 0; i < clients->count; i++) {
		struct client *client = &clients->list[i];
		client->active = client->ready = 0;
		client->lateness = ON_TIME;
		client->returns = client->excuses = client->offered = 0;
		client->complaints = 0;
	}
	state_make_room(s, MAX_CLIENTS - clients->count);
	host_move(&pending->list[clients->count], pending->list, pending->count * sizeof(struct client));
	host_move(pending->list, clients->list, clients->count * sizeof(struct client));
	pending->count += clients->count;
	host_zero(clients, sizeof *clients);
	host_zero(s->epoch.ready, sizeof s->epoch.ready);
	s->epoch.ready_count = 0;
}

static void forgive(struct clients *clients) {
	for (uint32_t i = 0; i < clients->count; i++) {
		struct client *client = &clients->list[i];
		if (client->lateness != ON_TIME) client->active = 0;
		client->lateness = ON_TIME;
		client->returns = client->excuses = 0;
	}
}

// state_forgive ports State.forgive.
void state_forgive(struct state *s) {
	forgive(&s->epoch.clients);
	forgive(&s->epoch.exited);
}

// state_drop_silent ports State.dropSilent.
void state_drop_silent(struct state *s) {
	for (uint32_t i = 0; i < s->epoch.clients.count; i++) {
		struct client *client = &s->epoch.clients.list[i];
		if (client->state == HEALTHY && (!client->active || (client->lateness != ON_TIME && !state_has_reported(s, client)))) client->state = DROPPED;
	}
}
