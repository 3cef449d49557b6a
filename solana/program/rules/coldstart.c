// coordinator/coldstart.go.

#include "coordinator.h"

// state_warm is State.warm.
void state_warm(struct state *s, struct round *round) {
	if (s->model.cold_start_warmup_steps == 0) return;
	uint8_t warming[SET_SIZE];
	bool experienced = false;
	struct lookup clients = {s->epoch.clients.list, s->epoch.clients.count, 0};
	host_zero(warming, sizeof warming);
	for (uint32_t member = 0; member < round->member_count; member++) {
		if (!member_set_has(round->owners, member)) continue;
		const struct client *client = lookup_find(&clients, &round->members[member]);
		if (client && round->step - client->optimizer_since < s->model.cold_start_warmup_steps)
			member_set_add(warming, member);
		else
			experienced = true;
	}
	if (experienced) host_move(round->warming, warming, sizeof warming);
}
