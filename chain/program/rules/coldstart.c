// Ports core/coordinator/coldstart.go.

#include "coordinator.h"

// state_warm ports State.warm.
void state_warm(struct state *s, struct round *round) {
	uint32_t steps = s->model.cold_start_warmup_steps;
	if (steps == 0 && state_probation(s) == 0) return;
	uint8_t probation[SET_SIZE], warming[SET_SIZE];
	bool regular = false, experienced = false;
	struct lookup clients = {s->epoch.clients.list, s->epoch.clients.count, 0};
	host_zero(probation, sizeof probation);
	host_zero(warming, sizeof warming);
	for (uint32_t member = 0; member < round->member_count; member++) {
		if (!member_set_has(round->owners, member)) continue;
		const struct client *client = lookup_find(&clients, &round->members[member]);
		if (client && state_on_probation(s, client, round->step))
			member_set_add(probation, member);
		else
			regular = true;
		if (client && round->step - client->optimizer_since < steps) member_set_add(warming, member);
	}
	if (!regular) host_zero(probation, sizeof probation);
	for (uint32_t i = 0; i < SET_SIZE; i++) experienced |= (round->owners[i] & ~(probation[i] | warming[i])) != 0;
	for (uint32_t i = 0; i < SET_SIZE; i++) round->warming[i] = experienced ? probation[i] | warming[i] : probation[i];
}
