// Ports core/assign/share.go, as far as the rules need it.

#include "coordinator.h"

enum { LEVELS_PER_OCTAVE = 8, SHARE_GROUPS = 2 * SHARE_RANGE + 1, AUDIT_RANGE = 2 * LEVELS_PER_OCTAVE };

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

// assign_cut_fastest ports CutFastest.
void assign_cut_fastest(uint8_t *levels, uint32_t count) {
	uint32_t fastest = count < 4 ? 1 : (count - 1) / 3, highest = UINT8_MAX;
	uint16_t with[UINT8_MAX + 1];
	if (fastest >= count) return;
	host_zero(with, sizeof with);
	for (uint32_t i = 0; i < count; i++) with[levels[i]]++;
	for (uint32_t above = with[highest]; above <= fastest; above += with[highest]) highest--;
	highest += AUDIT_RANGE;
	for (uint32_t i = 0; i < count; i++)
		if (levels[i] > highest) levels[i] = (uint8_t)highest;
}

// shares are the sizes of the batches by group of trainers. more is the number of trainers of a group that get
// one more: the first of the group in the order of the "batch" shuffle.
struct shares {
	uint32_t reference;
	bool draws; // only some trainers of a group without sequences get one
	uint32_t size[SHARE_GROUPS];
	uint16_t members[SHARE_GROUPS], more[SHARE_GROUPS];
};

// share_sequences computes the shares of trainers.
static void share_sequences(const struct round *r, const uint8_t *trainers, uint32_t count, struct shares *x) {
	uint64_t sum = 0;
	uint32_t left = r->batch_size;
	uint16_t with[UINT8_MAX + 1];
	host_zero(x, sizeof *x);
	host_zero(with, sizeof with);
	for (uint32_t i = 0; i < count; i++) with[r->levels[trainers[i]]]++;
	x->reference = assign_reference(with, count);
	for (uint32_t i = 0; i < count; i++) x->members[share_group(r->levels[trainers[i]], x->reference)]++;
	for (uint32_t group = 0; group < SHARE_GROUPS; group++)
		sum += x->members[group] * ((uint64_t)mantissas[group % LEVELS_PER_OCTAVE] << group / LEVELS_PER_OCTAVE);
	for (uint32_t group = 0; group < SHARE_GROUPS; group++) {
		uint64_t weight = (uint64_t)mantissas[group % LEVELS_PER_OCTAVE] << group / LEVELS_PER_OCTAVE;
		x->size[group] = (uint32_t)(r->batch_size * weight / sum);
		left -= x->size[group] * x->members[group];
	}
	for (uint32_t group = SHARE_GROUPS; group-- > 0;) {
		x->more[group] = (uint16_t)(left < x->members[group] ? left : x->members[group]);
		left -= x->more[group];
		x->draws = x->draws || (x->size[group] == 0 && x->more[group] > 0 && x->more[group] < x->members[group]);
	}
}

// assign_share_sizes ports shares for trainers in the order of their batches.
void assign_share_sizes(const struct round *r, const uint8_t *order, uint32_t count, uint32_t sizes[MAX_CLIENTS]) {
	struct shares x;
	share_sequences(r, order, count, &x);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t group = share_group(r->levels[order[i]], x.reference);
		sizes[i] = x.size[group];
		if (x.more[group] == 0) continue;
		x.more[group]--;
		sizes[i]++;
	}
}

// assign_share_owners adds the trainers that get a sequence in shares to a set.
void assign_share_owners(const struct round *r, const uint8_t *trainers, uint32_t count, uint8_t set[SET_SIZE]) {
	uint8_t order[MAX_CLIENTS];
	struct shares x;
	share_sequences(r, trainers, count, &x);
	for (uint32_t i = 0; i < count; i++) order[i] = (uint8_t)i;
	if (x.draws) assign_in_order(count, count, r->batch_seed, SALT_BATCH, order);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t member = trainers[order[i]], group = share_group(r->levels[member], x.reference);
		if (x.size[group] == 0 && x.more[group] == 0) continue;
		if (x.size[group] == 0) x.more[group]--;
		member_set_add(set, member);
	}
}
