// Ports core/assign/assign.go and the counts of core/assign/committee.go. A round has at least one
// member.

#include "coordinator.h"

// non_trainers ports nonTrainers.
static uint32_t non_trainers(uint32_t members, uint32_t verification_percent) {
	uint32_t idle = members * verification_percent / 100;
	return idle < members ? idle : members - 1;
}

// assign_elected_witnesses ports electedWitnesses.
uint32_t assign_elected_witnesses(uint32_t members, uint32_t witness_nodes) {
	if (witness_nodes == 0) witness_nodes = MAX_WITNESSES;
	return members < witness_nodes ? members : witness_nodes;
}

// assign_witnesses ports Witnesses and returns a set. If all members are elected, it needs no
// shuffle.
void assign_witnesses(uint64_t seed, uint32_t members, uint32_t elected, uint8_t set[SET_SIZE]) {
	uint8_t order[MAX_CLIENTS];
	for (uint32_t i = 0; i < members; i++) order[i] = (uint8_t)i;
	if (elected < members) assign_in_order(members, elected, seed, SALT_WITNESS, order);
	host_zero(set, SET_SIZE);
	for (uint32_t i = 0; i < elected; i++) member_set_add(set, order[i]);
}

// assign_trainers ports Trainers. It returns the number of trainers.
static uint32_t assign_trainers(uint64_t seed, uint32_t members, uint32_t verification_percent, uint8_t list[MAX_CLIENTS]) {
	uint8_t order[MAX_CLIENTS], idle[SET_SIZE];
	uint32_t places = non_trainers(members, verification_percent), count = 0;
	if (places > 0) assign_in_order(members, places, seed, SALT_COMMITTEE, order);
	host_zero(idle, SET_SIZE);
	for (uint32_t i = 0; i < places; i++) member_set_add(idle, order[i]);
	for (uint32_t i = 0; i < members; i++)
		if (!member_set_has(idle, i)) list[count++] = (uint8_t)i;
	return count;
}

// assign_owners ports Owners and returns a set.
void assign_owners(const struct round *r, uint32_t verification_percent, uint8_t set[SET_SIZE]) {
	uint8_t trainers[MAX_CLIENTS], order[MAX_CLIENTS];
	uint32_t count = assign_trainers(r->batch_seed, r->member_count, verification_percent, trainers);
	uint32_t owners = count, equal = 1;
	host_zero(set, SET_SIZE);
	while (equal < r->member_count && r->levels[equal] == r->levels[0]) equal++;
	if (equal < r->member_count) {
		assign_share_owners(r, trainers, count, set);
		return;
	}
	for (uint32_t i = 0; i < count; i++) order[i] = (uint8_t)i;
	if (r->batch_size < count) {
		assign_in_order(count, r->batch_size, r->batch_seed, SALT_BATCH, order);
		owners = r->batch_size;
	}
	for (uint32_t i = 0; i < owners; i++) member_set_add(set, trainers[order[i]]);
}

// round_trainers ports Trainers for a round whose owners are known. If all trainers own batches, it needs no shuffle.
static uint32_t round_trainers(const struct round *r, uint32_t verification_percent, uint8_t list[MAX_CLIENTS]) {
	uint32_t count = 0;
	if (member_set_count(r->owners) + non_trainers(r->member_count, verification_percent) < r->member_count)
		return assign_trainers(r->batch_seed, r->member_count, verification_percent, list);
	for (uint32_t i = 0; i < r->member_count; i++)
		if (member_set_has(r->owners, i)) list[count++] = (uint8_t)i;
	return count;
}

// assign_batches ports Batches. It writes the trainers in the order of their batches, with the sizes of the
// batches, and returns their number. A size may be 0.
uint32_t assign_batches(const struct round *r, uint32_t verification_percent, uint8_t order[MAX_CLIENTS], uint32_t sizes[MAX_CLIENTS]) {
	uint8_t trainers[MAX_CLIENTS];
	uint32_t count = round_trainers(r, verification_percent, trainers), equal = 1;
	assign_in_order(count, count, r->batch_seed, SALT_BATCH, order);
	for (uint32_t i = 0; i < count; i++) order[i] = trainers[order[i]];
	while (equal < r->member_count && r->levels[equal] == r->levels[0]) equal++;
	if (equal < r->member_count) {
		assign_share_sizes(r, order, count, sizes);
		return count;
	}
	for (uint32_t i = 0; i < count; i++) sizes[i] = r->batch_size / count + (i < r->batch_size % count);
	return count;
}

// assign_quorum ports Quorum.
uint32_t assign_quorum(uint32_t n) { return (2 * n + 2) / 3; }
