// Draws: random numbers that the sender of a tick cannot choose.

#include "program.h"

// slot_hashes is the address of the sysvar SysvarS1otHashes111111111111111111111111111.
static const struct key slot_hashes = {{0xaf0a2f1917d5a706, 0x7acc77fbe365f2c6, 0x133bbed029c582da, 0x0000002055002d6e}};

// slot_hash is an entry of that sysvar. The sysvar holds a count and at most 512 entries, newest
// first.
struct slot_hash {
	uint64_t slot;
	struct key hash;
};

// needs_draw reports whether a tick in the run's current state may use a draw.
bool needs_draw(const struct state *s) {
	return s->run_state == WAITING_FOR_MEMBERS || s->run_state == WARMUP || s->run_state == ROUND_WITNESS;
}

// find_slot finds the oldest entry with a slot of at least target. There is no such entry while
// every slot from target on was skipped.
static uint64_t find_slot(uint64_t target, struct slot_hash *found, bool *ready) {
	uint64_t count = 0, low = 0;
	if (sol_get_sysvar(&slot_hashes, &count, 0, sizeof count)) return UNSUPPORTED_SYSVAR;
	for (uint64_t high = count; low < high;) {
		uint64_t middle = (low + high) / 2;
		struct slot_hash entry;
		if (sol_get_sysvar(&slot_hashes, &entry, sizeof count + middle * sizeof entry, sizeof entry)) return UNSUPPORTED_SYSVAR;
		if (entry.slot < target) {
			high = middle;
			continue;
		}
		low = middle + 1;
		*found = entry;
	}
	*ready = low > 0;
	return 0;
}

// read_draw computes the draw of the target slot. It sets ready only if the chain is past that
// slot.
uint64_t read_draw(struct event *e, uint64_t target, const struct key *run, bool *ready) {
	struct slot_hash entry;
	if (e->slot <= target) return 0;
	uint64_t failed = find_slot(target, &entry, ready);
	if (failed || !*ready) return failed;
	struct slice message[3] = {{"psyche/draw/v1", 14}, {run, sizeof *run}, {&entry, sizeof entry}};
	host_sha256(message, 3, (uint8_t *)&e->draw);
	return 0;
}
