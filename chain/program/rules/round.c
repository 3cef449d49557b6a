// Ports core/coordinator/round.go.

#include "coordinator.h"

// round_elected_set ports Round.electedSet.
void round_elected_set(const struct round *r, const struct config *c, uint8_t set[SET_SIZE]) {
	assign_witnesses(r->seed, r->member_count, assign_elected_witnesses(r->member_count, c->witness_nodes), set);
}

// round_member_index ports Round.MemberIndex.
bool round_member_index(const struct round *r, const struct key *id, uint32_t *member) {
	int32_t i = index_of_key(r->members, r->member_count, id);
	*member = (uint32_t)i;
	return i >= 0;
}

// round_overfills ports Round.overfills. Each owner has one batch.
bool round_overfills(const struct round *r, const struct witness *w) {
	return bloom_ones_count(&w->participants) > FILTER_HASHES * (uint32_t)r->member_count ||
	       bloom_ones_count(&w->commitments) > FILTER_HASHES * member_set_count(r->owners);
}

// round_has_quorum ports Round.HasQuorum.
bool round_has_quorum(const struct round *r) { return r->witnesses_needed > 0 && r->witness_count >= r->witnesses_needed; }
