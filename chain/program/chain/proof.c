// The proof of an Equivocation. The chain itself verified the two signatures in the preceding
// instruction.

#include "program.h"

// Addresses Sysvar1nstructions1111111111111111111111111 and
// Ed25519SigVerify111111111111111111111111111.
static const struct key instructions = {{0x66d17b1817d5a706, 0xc0c2fd5504d4da35, 0xa57556218fc624c1, 0x000000085fcbbadb}};
static const struct key ed25519 = {{0xbefb937cd6467d03, 0xff408d838f42f912, 0x648af42749747005, 0x000000804470cafc}};

enum {
	ANNOUNCED_RUN = 24, // offset in the signed message; see rules/decode.c
	SIGNATURES = 2,
	SIGNATURE_FIELDS = 7, // 16-bit fields: the positions of signature, key and message, each with its instruction, and the message's size
	PROVEN_SIZE = 2 + SIGNATURES * 2 * SIGNATURE_FIELDS,
};

// top_level is a top-level instruction of the transaction, as the sysvar stores it.
struct top_level {
	const struct key *program; // not aligned
	const uint8_t *data;
	uint64_t size, accounts;
};

// read_top_level reads an instruction of the transaction. It trusts the sysvar, which the chain
// itself writes.
static void read_top_level(const struct input_account *sysvar, uint64_t index, struct top_level *t) {
	const uint8_t *at = sysvar->data + uint16_at(sysvar->data + 2 + 2 * index);
	t->accounts = uint16_at(at);
	at += 2 + t->accounts * (1 + sizeof(struct key));
	t->program = (const struct key *)at;
	t->size = uint16_at(at + sizeof(struct key));
	t->data = at + sizeof(struct key) + 2;
}

// names_field reports whether two numbers refer to a given position in the data of a given
// instruction.
static bool names_field(const uint8_t *at, uint64_t place, uint64_t index) { return uint16_at(at) == place && uint16_at(at + 2) == index; }

// check_proof requires that the preceding instruction is the chain's signature check of exactly the
// keys, signatures and messages in this action. This instruction must be a top-level instruction of
// the transaction: calls from other programs are refused.
uint64_t check_proof(const struct call *c) {
	struct action a;
	struct key run;
	enum code refused = decode_action(&a, c->data + 8, c->size - 8);
	if (refused) return refused;
	struct slice named[3] = {{"psyche/run/v1", 13}, {c->program, sizeof *c->program}, {&c->target->address, sizeof(struct key)}};
	host_sha256(named, 3, (uint8_t *)&run);
	if (!host_equal(a.proof.message[0] + ANNOUNCED_RUN, &run, sizeof run)) return INVALID_ARGUMENT;
	const struct input_account *sysvar = c->third;
	if (!key_equal(&sysvar->address, &instructions)) return INVALID_ARGUMENT;
	uint64_t index = uint16_at(sysvar->data + sysvar->size - 2);
	if (index == 0) return INVALID_ARGUMENT;
	struct top_level own, check;
	const uint8_t *data = c->data - 1;
	read_top_level(sysvar, index, &own);
	if (!host_equal(own.program, c->program, sizeof(struct key)) || own.size != c->size + 1 || !host_equal(own.data, data, own.size)) return INVALID_ARGUMENT;
	read_top_level(sysvar, index - 1, &check);
	if (!host_equal(check.program, &ed25519, sizeof(struct key)) || check.size != PROVEN_SIZE || check.data[0] != SIGNATURES) return INVALID_ARGUMENT;
	for (uint32_t i = 0; i < SIGNATURES; i++) {
		const uint8_t *at = check.data + 2 + i * 2 * SIGNATURE_FIELDS;
		bool same = names_field(at, (uint64_t)(a.proof.signature[i] - data), index) && names_field(at + 4, 10, index) &&
		            uint16_at(at + 8) == a.proof.message[i] - data && uint16_at(at + 10) == a.proof.size[i] && uint16_at(at + 12) == index;
		if (!same) return INVALID_ARGUMENT;
	}
	return 0;
}
