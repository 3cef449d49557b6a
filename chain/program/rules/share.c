// Ports core/assign/share.go, as far as the rules need it: which trainers get a batch.

#include "coordinator.h"

enum { LEVELS_PER_OCTAVE = 8, SHARE_GROUPS = 2 * SHARE_RANGE + 1 };

static const uint16_t mantissas[LEVELS_PER_OCTAVE] = {256, 279, 304, 332, 362, 395, 431, 470};

// share_group returns the number of the group of trainers with the same weight as a level.
static uint32_t share_group(uint32_t level, uint32_t reference) {
	if (level == reference + 1) return SHARE_RANGE;
	if (level + SHARE_RANGE < reference) return 0;
	uint32_t group = level + SHARE_RANGE - reference;
	return group < SHARE_GROUPS ? group : SHARE_GROUPS - 1;
}

// assign_reference ports assign.Reference. with contains the number of members with each level, at least one in all.
uint32_t assign_reference(const uint16_t with[UINT8_MAX + 1], uint32_t count) {
	uint32_t level = 0;
	for (uint32_t below = with[0]; below <= count / 3; below += with[level]) level++;
	return level;
}

// assign_share_owners adds the trainers that get a sequence in shares to a set. All trainers of a group get
// the same number, and some of one group get one more: the first trainers in the order of the "batch" shuffle.
void assign_share_owners(const struct round *r, const uint8_t *trainers, uint32_t count, uint8_t set[SET_SIZE]) {
	uint8_t order[MAX_CLIENTS];
	uint16_t with[UINT8_MAX + 1], members[SHARE_GROUPS], more[SHARE_GROUPS];
	uint64_t sum = 0;
	bool draws = false;
	host_zero(with, sizeof with);
	host_zero(members, sizeof members);
	for (uint32_t i = 0; i < count; i++) with[r->levels[trainers[i]]]++;
	uint32_t reference = assign_reference(with, count), left = r->batch_size;
	for (uint32_t i = 0; i < count; i++) members[share_group(r->levels[trainers[i]], reference)]++;
	for (uint32_t group = 0; group < SHARE_GROUPS; group++)
		sum += members[group] * ((uint64_t)mantissas[group % LEVELS_PER_OCTAVE] << group / LEVELS_PER_OCTAVE);
	for (uint32_t group = 0; group < SHARE_GROUPS; group++) {
		uint64_t weight = (uint64_t)mantissas[group % LEVELS_PER_OCTAVE] << group / LEVELS_PER_OCTAVE;
		uint64_t size = r->batch_size * weight / sum;
		left -= (uint32_t)size * members[group];
		more[group] = size > 0 ? MAX_CLIENTS : 0;
	}
	for (uint32_t group = SHARE_GROUPS; group-- > 0;) {
		uint32_t taken = left < members[group] ? left : members[group];
		left -= taken;
		if (more[group] == 0) {
			more[group] = (uint16_t)taken;
			draws = draws || (taken > 0 && taken < members[group]);
		}
	}
	for (uint32_t i = 0; i < count; i++) order[i] = (uint8_t)i;
	if (draws) assign_in_order(count, count, r->batch_seed, SALT_BATCH, order);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t member = trainers[order[i]], group = share_group(r->levels[member], reference);
		if (more[group] == 0) continue;
		more[group]--;
		member_set_add(set, member);
	}
}
