// The chain's system calls that the program uses.
#ifndef PSYCHE_SYSTEM_H
#define PSYCHE_SYSTEM_H

#include "state.h"

struct slice;

// clock is the chain's clock sysvar.
struct clock {
	uint64_t slot;
	int64_t epoch_start;
	uint64_t epoch, leader_schedule_epoch;
	int64_t unix_timestamp;
};

extern uint64_t sol_sha256(const struct slice *pieces, uint64_t count, uint8_t *digest);
extern uint64_t sol_memmove_(void *to, const void *from, uint64_t size);
extern uint64_t sol_memset_(void *at, uint8_t value, uint64_t size);
extern uint64_t sol_memcmp_(const void *a, const void *b, uint64_t size, int32_t *result);
extern uint64_t sol_log_data(const struct slice *pieces, uint64_t count);
extern uint64_t sol_get_clock_sysvar(struct clock *clock);
extern uint64_t sol_get_sysvar(const struct key *id, void *to, uint64_t offset, uint64_t size);

#endif
