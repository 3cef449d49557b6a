// Staging. A genesis or an UpdateConfig is too long for one transaction. So the main authority
// writes it in pieces and then names it by length and hash.

#include "program.h"

// run_write writes one piece: offset u32, bytes.
uint64_t run_write(const struct call *c) {
	struct account *a;
	uint64_t refused = run_account(c, &a);
	if (refused) return refused;
	if (!key_equal(&c->signer->address, &a->main)) return INCORRECT_AUTHORITY;
	if (c->size <= 4) return INVALID_INSTRUCTION_DATA;
	uint64_t at = uint32_at(c->data), end = at + c->size - 4;
	if (end > STAGE_SIZE) return INVALID_INSTRUCTION_DATA;
	host_move(a->stage + at, c->data + 4, c->size - 4);
	if (end > a->staged) a->staged = (uint32_t)end;
	return 0;
}

// staged_bytes returns the number of staged bytes that the instruction names: length u32, SHA-256.
uint64_t staged_bytes(const struct account *a, const uint8_t *named, uint64_t size, uint64_t *length) {
	if (size != 4 + sizeof(struct key)) return INVALID_INSTRUCTION_DATA;
	*length = uint32_at(named);
	if (*length > a->staged) return INVALID_INSTRUCTION_DATA;
	struct slice staged = {a->stage, *length};
	struct key digest;
	host_sha256(&staged, 1, (uint8_t *)&digest);
	return host_equal(&digest, named + 4, sizeof digest) ? 0 : INVALID_INSTRUCTION_DATA;
}

// clear_stage zeroes the staged bytes after use, so that clients need not fetch them.
void clear_stage(struct account *a) {
	host_zero(a->stage, a->staged);
	a->staged = 0;
}
