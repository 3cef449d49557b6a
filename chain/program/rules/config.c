// Ports core/coordinator/config.go. All refusals have the same code, so the rules need no names
// here.

#include "coordinator.h"

// config_validate_times reports whether Config.brokenTimes returns none.
static bool config_validate_times(const struct config *c) {
	return c->warmup_time <= MAX_TIME && c->cooldown_time <= MAX_TIME && c->epoch_time <= MAX_TIME &&
	       c->max_round_train_time <= MAX_TIME && c->round_witness_time <= MAX_TIME &&
	       c->waiting_for_members_extra_time <= MAX_TIME;
}

// config_validate ports Config.Validate.
bool config_validate(const struct config *c) {
	if (c->rounds_per_epoch == 0 && c->epoch_time == 0) return false;
	if (c->rounds_per_epoch != 0 && c->epoch_time != 0) return false;
	if (c->epoch_time != 0 && c->warmup_time >= c->epoch_time) return false;
	if (c->max_round_train_time == 0) return false;
	if (c->epoch_time != 0 && c->max_round_train_time >= c->epoch_time) return false;
	if (c->round_witness_time == 0) return false;
	if (c->min_clients == 0) return false;
	if (c->init_min_clients < c->min_clients) return false;
	if (c->init_min_clients > MAX_CLIENTS) return false;
	if (c->global_batch_size_start == 0) return false;
	if (c->global_batch_size_end < c->global_batch_size_start) return false;
	if (c->total_steps == 0) return false;
	if (c->total_steps == UINT32_MAX) return false;
	if (c->witness_nodes > c->min_clients) return false;
	if (c->witness_nodes > MAX_WITNESSES) return false;
	if (c->cooldown_time == 0) return false;
	if (c->waiting_for_members_extra_time == 0) return false;
	if (c->verification_percent > 100) return false;
	return config_validate_times(c);
}

// checkpoint_validate ports Checkpoint.validate, except for the length of the names, which decoding
// has checked.
static bool checkpoint_validate(const struct checkpoint *c) {
	bool p2p = from_peers(c->kind);
	if (!p2p && !is_origin(c->kind)) return false;
	if (p2p && (!is_origin(c->origin) || over_p2p(c->origin) != c->kind)) return false;
	if (!p2p && c->origin != 0) return false;
	if (c->repo_length == 0 && c->kind != CHECKPOINT_DUMMY && c->origin != CHECKPOINT_DUMMY) return false;
	return p2p || (key_is_zero(&c->digest) && c->step == 0);
}

// model_validate ports Model.validate, except for the size of the definition, which decoding has
// checked.
static bool model_validate(const struct update *u) {
	const struct config *c = &u->config;
	uint64_t rounds = c->rounds_per_epoch;
	if (c->epoch_time != 0) rounds = (c->epoch_time - c->warmup_time) / c->max_round_train_time;
	if (u->max_seq_len == 0) return false;
	if (u->cold_start_warmup_steps > rounds) return false;
	return checkpoint_validate(&u->checkpoint);
}

// update_validate ports UpdateConfig.Validate.
bool update_validate(const struct update *u) { return config_validate(&u->config) && model_validate(u); }

// multiply returns the product of a and b in two words. It is bits.Mul64 for a 32-bit b.
static uint64_t multiply(uint64_t a, uint32_t b, uint64_t *high) {
	uint64_t low = (a & UINT32_MAX) * b;
	uint64_t middle = (a >> 32) * b + (low >> 32);
	*high = middle >> 32;
	return middle << 32 | (low & UINT32_MAX);
}

// divide is bits.Div64. The high word must be less than the divisor. The chain has no such
// instruction, so divide computes the quotient bit by bit.
static uint64_t divide(uint64_t high, uint64_t low, uint64_t divisor, uint64_t *rest) {
	uint64_t quotient = 0;
	for (uint32_t i = 0; i < 64; i++) {
		bool carry = high >> 63;
		high = high << 1 | low >> 63;
		low <<= 1;
		quotient <<= 1;
		if (carry || high >= divisor) {
			high -= divisor;
			quotient |= 1;
		}
	}
	*rest = high;
	return quotient;
}

// config_batch_size ports Config.BatchSize.
uint32_t config_batch_size(const struct config *c, uint64_t data_index, uint32_t max_seq_len) {
	uint64_t warmup = c->global_batch_size_warmup_tokens, high, rest;
	uint64_t tokens = multiply(data_index, max_seq_len, &high);
	if (high != 0 || tokens >= warmup) return c->global_batch_size_end;
	uint64_t low = multiply(tokens, c->global_batch_size_end - c->global_batch_size_start, &high);
	uint64_t grown = divide(high, low, warmup, &rest);
	if (rest >= warmup - rest) grown++;
	return c->global_batch_size_start + (uint32_t)grown;
}

// is_origin ports CheckpointKind.isOrigin.
bool is_origin(uint8_t kind) {
	return kind == CHECKPOINT_HUB || kind == CHECKPOINT_GCS || kind == CHECKPOINT_LOCAL || kind == CHECKPOINT_DUMMY;
}

// from_peers ports Checkpoint.FromPeers.
bool from_peers(uint8_t kind) { return kind == CHECKPOINT_P2P || kind == CHECKPOINT_P2P_GCS; }

// over_p2p ports CheckpointKind.overP2P.
uint8_t over_p2p(uint8_t kind) { return kind == CHECKPOINT_GCS ? CHECKPOINT_P2P_GCS : CHECKPOINT_P2P; }

// validate_run_id ports validateRunID.
bool validate_run_id(const uint8_t *run_id, uint32_t length) {
	if (length == 0 || length > MAX_RUN_ID_LENGTH) return false;
	for (uint32_t i = 0; i < length; i++)
		if (run_id[i] < ' ' || run_id[i] == 0x7f) return false;
	return true;
}
