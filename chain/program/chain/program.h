// The host of a run on the chain: its accounts, and the instructions that change them.
// docs/solana.md describes them in tables.
#ifndef PSYCHE_PROGRAM_H
#define PSYCHE_PROGRAM_H

#include "coordinator.h"
#include "system.h"

// The first eight bytes of an account identify its kind: "psy-run" and a zero byte, "psy-peer",
// "psy-auth", or "psy-free". If an account is freed but funded again in the same transaction, only its owner can
// use it: the owner can free it again.
#define RUN_MAGIC 0x006e75722d797370ull
#define PEER_MAGIC 0x726565702d797370ull
#define GRANT_MAGIC 0x687475612d797370ull
#define FREED_MAGIC 0x656572662d797370ull

enum {
	ACCOUNT_VERSION = 1, // for run, peer and grant accounts
	STAGE_SIZE = 8960,   // fits any genesis and any UpdateConfig
	MAX_SALT = 32,
	MAX_ADDRESSES = 8, // see package backend
	MAX_ADDRESS_LENGTH = 256,
	MAX_ADDRESSES_TOTAL = 1024,
	ANNOUNCEMENT_SIZE = 1 + 2 * MAX_ADDRESSES + MAX_ADDRESSES_TOTAL,
	MAX_GRANT_DELEGATES = 256,
};

// account is the account of a run. The fields up to main have the same position in every version.
// So an owner can always get the rent back, whatever follows them.
struct account {
	uint64_t magic;
	uint32_t version;
	uint8_t run_state, closed, unused[2]; // copies of the fields in state
	struct key main;
	uint64_t slot;  // of the newest change of state
	uint64_t armed; // slot at which a tick began to wait for its draw; 0 means no tick waits
	struct key head;
	uint32_t staged, unused_too; // staged: number of bytes written to stage
	struct state state;
	uint8_t lead[8]; // holds the kind of an action if the rest of the action is staged
	uint8_t stage[STAGE_SIZE];
};

// peer holds the network addresses of a client. The fields up to owner have the same position in
// every version.
struct peer {
	uint64_t magic;
	uint32_t version, size; // size is the length of addresses
	struct key run, owner;
	uint64_t slot; // of the announcement
	uint8_t addresses[ANNOUNCEMENT_SIZE + 7]; // as in the instruction, padded with zeros
};

// grant authorizes the grantee and its delegates for all runs whose join authority is the grantor.
// The grantor has the position of a run's main authority, so FREE ends both kinds of account.
struct grant {
	uint64_t magic;
	uint32_t version, count; // count is the number of delegates; the account's size limits it
	struct key grantor, grantee;
	struct key delegates[];
};

_Static_assert(offsetof(struct account, main) == 16 && offsetof(struct account, state) == 104, "layout");
_Static_assert(offsetof(struct account, stage) == 344584 && sizeof(struct account) == 353544, "layout");
_Static_assert(offsetof(struct peer, addresses) == 88 && sizeof(struct peer) == 1136, "layout");
_Static_assert(offsetof(struct grant, grantor) == offsetof(struct account, main) && sizeof(struct grant) == 80, "layout");

enum instruction { INIT = 1, WRITE, GENESIS, ACT, TICK, FREE, ANNOUNCE, FORGET, MIGRATE, GRANT, DELEGATE };

// Results. A refusal by the rules returns a number of enum code. The other results are the host's
// own errors and the standard errors of programs on the chain.
enum { ERR_OTHER_VERSION = 256, ERR_NO_MIGRATION, ERR_GRANT };
#define BUILTIN(n) ((uint64_t)(n) << 32)
#define INVALID_ARGUMENT BUILTIN(2)
#define INVALID_INSTRUCTION_DATA BUILTIN(3)
#define INVALID_ACCOUNT_DATA BUILTIN(4)
#define MISSING_REQUIRED_SIGNATURE BUILTIN(8)
#define ACCOUNT_ALREADY_INITIALIZED BUILTIN(9)
#define UNINITIALIZED_ACCOUNT BUILTIN(10)
#define NOT_ENOUGH_ACCOUNT_KEYS BUILTIN(11)
#define INVALID_SEEDS BUILTIN(14)
#define UNSUPPORTED_SYSVAR BUILTIN(17)
#define INVALID_ACCOUNT_OWNER BUILTIN(23)
#define IMMUTABLE BUILTIN(25)
#define INCORRECT_AUTHORITY BUILTIN(26)

// input_account is an account in the layout of the chain's loader. An account that the instruction
// names twice has only an index the second time.
struct input_account {
	uint8_t duplicate, signer, writable, executable, unused[4];
	struct key address, owner;
	uint64_t lamports, size;
	uint8_t data[];
};

_Static_assert(sizeof(struct input_account) == 88, "layout");

enum { MAX_ACCOUNTS = 3 };

// call is an instruction with its accounts: the target account, the signer, and a third account.
struct call {
	struct input_account *target, *signer, *third;
	const struct key *program;
	uint8_t instruction;
	const uint8_t *data; // after the kind of instruction
	uint64_t size;
};

// input.c
uint64_t read_call(struct call *c, uint8_t *input);

// run.c: accounts of runs
uint64_t run_account(const struct call *c, struct account **a);
uint64_t begun_account(const struct call *c, struct account **a);
uint64_t run_init(const struct call *c);
uint64_t run_genesis(const struct call *c);
uint64_t run_act(const struct call *c);
uint64_t run_tick(const struct call *c);

// stage.c
uint64_t run_write(const struct call *c);
uint64_t staged_bytes(const struct account *a, const uint8_t *named, uint64_t size, uint64_t *length);
void clear_stage(struct account *a);

// free.c: freeing accounts
void pay_out(struct input_account *from, struct input_account *to);
uint64_t run_free(const struct call *c);
uint64_t run_migrate(const struct call *c);

// peer.c
uint64_t peer_announce(const struct call *c);
uint64_t peer_forget(const struct call *c);

// grant.c
uint64_t grant_create(const struct call *c);
uint64_t grant_delegate(const struct call *c);
uint64_t check_grant(const struct call *c, const struct state *s);

// log.c

// event is the log entry for a change of a run's state.
struct event {
	uint64_t instruction, sequence, slot, now;
	struct key draw, head;
};

// cause is the origin of a change: the signer and the signed action. For a tick it is empty.
struct cause {
	struct key actor;
	uint64_t nonce;
	const uint8_t *data;
	uint64_t size;
};

uint64_t read_clock(uint64_t *slot, uint64_t *now);
void first_head(struct account *a, const struct call *c, uint64_t size);
void next_head(const struct account *a, struct event *e, const struct cause *by);
void note_change(struct account *a, struct event *e);

// draw.c
bool needs_draw(const struct state *s);
uint64_t read_draw(struct event *e, uint64_t target, const struct key *run, bool *ready);

// proof.c
uint64_t check_proof(const struct call *c);

// address.c
bool is_address_with_seed(const struct key *address, const struct key *base, const uint8_t *seed, uint64_t size, const struct key *owner);
bool is_address_with_seed_of(const struct key *address, const struct key *base, const struct key *of, const struct key *owner);

#endif
