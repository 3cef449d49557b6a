// The state of a run as stored in its account: a port of core/coordinator/state.go.
//
// Integers are little endian, structures have multiples of 8 bytes, and lists are fixed arrays
// after their counts. Unused parts are zero, so that equal states have equal bytes. Fields called
// derived follow from the other fields. They are stored because computing them again would make a
// tick exceed the chain's cost limit.
#ifndef PSYCHE_STATE_H
#define PSYCHE_STATE_H

#include <stddef.h>
#include <stdint.h>

// Bounds of a state.
enum {
	MAX_CLIENTS = 256,
	MAX_WITNESSES = 32,
	STORED_ROUNDS = 4,
	MAX_RUN_ID_LENGTH = 32,
	MAX_REPO_LENGTH = 192,
	MAX_DEFINITION_SIZE = 8192,
	MAX_MEMBER_NAME = 32,
	MAX_AUTHORIZATIONS = 256,
	MAX_DELEGATES = 4,
	MAX_EJECTIONS = 256,
	MAX_UPLOADS = 4,
	MAX_UPLOAD_TRIES = 3,
	MAX_EARLIER = 8,
	MAX_ROLLBACK_GAPS = 8,
	TERM_ROUNDS = 32,
	MAX_RETURNS = 3,
	MAX_TRIALS = 8,
	MAX_JURY = 96,
	MAX_COMPLAINTS = 3,
	MAX_EXCUSES = 2,
	MAX_TRIALS_OF_ONE = 2,
	MAX_LOST = 128,
	MAX_RETRIES = 16,
	MAX_TRIES = 8,
	MAX_MARKS = 1 + MAX_EARLIER + 2,
	TRIAL_ROUNDS = 6,
	TRIAL_TIME = 60000,
	FILTER_WORDS = 40, // of bloom.Filter
	SET_SIZE = MAX_CLIENTS / 8,
};
#define MAX_TIME 1000000000000ull

// STATE_MAGIC is "psyche1" and a zero byte. STATE_VERSION is the version of the Go core's encoding,
// which has the same fields.
#define STATE_MAGIC 0x0031656863797370ull
enum { STATE_VERSION = 13 };

enum run_state { UNINITIALIZED, WAITING_FOR_MEMBERS, WARMUP, ROUND_TRAIN, ROUND_WITNESS, COOLDOWN, FINISHED, PAUSED };
enum client_state { HEALTHY, DROPPED, WITHDRAWN, EJECTED };
enum ejection_reason { BY_AUTHORITY, TWO_RESULTS, FOUND_GUILTY, ACCUSED_WRONGLY };
enum fault { FAULT_RESULT = 1, FAULT_SILENT, FAULT_PART, MAX_PARTS = 64, MAX_FAULT = FAULT_PART + MAX_PARTS - 1 };
enum lateness { ON_TIME, FOUND_LATE, LATE, SLOW };
enum checkpoint_kind {
	CHECKPOINT_HUB = 1,
	CHECKPOINT_P2P,
	CHECKPOINT_GCS,
	CHECKPOINT_P2P_GCS,
	CHECKPOINT_LOCAL,
	CHECKPOINT_DUMMY,
};

// code is the reason for refusing an action: core/coordinator/code.go.
enum code {
	ACCEPTED,
	ERR_HALTED,
	ERR_WRONG_STATE,
	ERR_WRONG_EPOCH,
	ERR_WRONG_STEP,
	ERR_NOT_MEMBER,
	ERR_NOT_ELECTED,
	ERR_NOT_AUTHORISED,
	ERR_DUPLICATE,
	ERR_STALE_NONCE,
	ERR_FULL,
	ERR_FALSE_ACCUSATION,
	ERR_INVALID_WITNESS,
	ERR_INVALID_ACTION,
	ERR_INVALID_CONFIG,
	ERR_MALFORMED,
	ERR_PERMISSIONLESS,
	ERR_WRONG_NUMBER,
	ERR_UNRECORDED,
};

// key is a ClientID or a digest.
struct key {
	uint64_t word[4];
};

struct filter {
	uint64_t word[FILTER_WORDS];
};

struct config {
	uint64_t warmup_time, cooldown_time, epoch_time, max_round_train_time, round_witness_time;
	uint64_t waiting_for_members_extra_time, global_batch_size_warmup_tokens;
	uint32_t rounds_per_epoch, global_batch_size_start, global_batch_size_end, total_steps, probation_steps;
	uint16_t init_min_clients, min_clients, witness_nodes, ejection_epochs;
	uint8_t verification_percent, shares_by_speed, retry_lost, unused;
};

// checkpoint stores its repository and then its revision in name.
struct checkpoint {
	uint8_t kind, origin, repo_length, revision_length;
	uint32_t step;
	struct key digest;
	uint8_t name[MAX_REPO_LENGTH];
};

struct model {
	uint32_t max_seq_len, cold_start_warmup_steps;
	struct checkpoint checkpoint;
	uint32_t definition_size, unused;
	uint8_t definition[MAX_DEFINITION_SIZE];
};

struct progress {
	uint32_t epoch, step;
	uint64_t data_index;
};

struct client {
	struct key id;
	uint64_t nonce;
	uint32_t exited_height, optimizer_since;
	struct key commitment;
	uint8_t state, holds_model, active, lateness;
	uint8_t ready : 1;  // derived: the member is in epoch.ready
	uint8_t barred : 1; // derived: the run no longer admits the member
	uint8_t waited : 1, offered : 1, returns : 2, excuses : 2;
	uint8_t complaints;
	uint16_t held_out; // a claim, which no rule uses
	uint32_t probation_until;
	uint8_t offer, level;
	uint8_t juror, voted; // bits, one for each trial slot
	uint32_t holds_earlier, report_step;
	struct key report;
};

struct clients {
	uint32_t count, unused;
	struct client list[MAX_CLIENTS];
};

struct witness {
	uint16_t member, loss; // loss, speed: claims, which no rule uses
	uint32_t speed;
	struct filter participants, commitments;
	struct key commitments_root, replica;
};

struct stretch {
	uint64_t start, end;
	uint8_t tries, unused[7];
};

struct mark {
	uint32_t step, unused;
	uint64_t data;
};

struct round {
	uint32_t height, step;
	uint64_t seed, batch_seed, data_index;
	uint32_t batch_size;
	uint16_t member_count, witness_count, witnesses_needed, witnesses_elected;
	uint32_t retry_count;
	uint64_t position;
	struct stretch retries[MAX_RETRIES];
	uint8_t warming[SET_SIZE];
	uint8_t owners[SET_SIZE];  // derived: members that own a batch
	uint8_t elected[SET_SIZE]; // derived: members that are witnesses
	uint8_t levels[MAX_CLIENTS];
	struct key challenge;
	uint8_t excused[SET_SIZE];
	struct key members[MAX_CLIENTS];
	struct witness witnesses[MAX_WITNESSES];
};

struct epoch {
	uint32_t start_step, last_step;
	uint64_t start_time;
	uint8_t cold_start, unused[7];
	uint32_t round_count, ready_count, commit_step, unused_too;
	struct key commit;
	struct clients clients, exited;
	struct key ready[MAX_CLIENTS];
	struct round rounds[STORED_ROUNDS];
};

struct recorded {
	struct key digest;
	uint32_t step, unused;
};

// upload stores its repository and then its revision in name.
struct upload {
	struct key reporter, digest;
	uint32_t step, since;
	uint8_t kind, tries, repo_length, revision_length, unused[4];
	uint8_t name[MAX_REPO_LENGTH];
};

struct rollback_gap {
	uint32_t first, last;
};

struct trial {
	struct key accused, accuser;
	uint64_t since_time;
	uint32_t step, since;
	uint8_t slot, fault, jurors, guilty, innocent, unused[3];
};

struct authorization {
	struct key grantee;
	uint64_t nonce;
	uint32_t number, delegate_count;
	struct key delegates[MAX_DELEGATES];
};

struct ejection {
	struct key client;
	uint32_t until;
	uint8_t reason, unused[3];
};

struct authority {
	struct key main, join;
	uint64_t main_nonce, join_nonce;
	uint32_t grants;
	uint8_t permissioned, unused[3];
	uint32_t authorization_count, ejection_count;
	struct authorization authorizations[MAX_AUTHORIZATIONS];
	struct ejection ejections[MAX_EJECTIONS];
};

// state begins with the fields that a client polls: the fields up to progress fit one small read.
// Go's DrawCommitment is missing, because it is always zero on a chain, where slots give the draws.
struct state {
	uint64_t magic;
	uint32_t version;
	uint8_t run_state, pending_pause, pending_resume, cold_start, closed, run_id_length, unused[6];
	uint8_t run_id[MAX_RUN_ID_LENGTH];
	uint64_t sequence; // of the newest change; the account's host counts it, the rules do not use it
	uint64_t state_start, minimum_since, host_nonce;
	struct key host, seed_chain;
	struct progress progress;
	uint32_t origin_step, earlier_count, upload_count, rollback_gap_count;
	struct config config;
	struct recorded earlier[MAX_EARLIER];
	struct upload uploads[MAX_UPLOADS];
	struct rollback_gap rollback_gaps[MAX_ROLLBACK_GAPS];
	struct key reveals;
	uint32_t trial_count, unused_too;
	struct trial trials[MAX_TRIALS];
	uint64_t position;
	uint32_t lost_count, mark_count;
	struct stretch lost[MAX_LOST];
	struct mark marks[MAX_MARKS];
	struct epoch epoch;
	struct clients pending, departed;
	struct authority authority;
	struct model model;
};

_Static_assert(sizeof(struct client) == 136 && sizeof(struct round) == 31832 && sizeof(struct upload) == 272, "layout");
_Static_assert(sizeof(struct trial) == 88 && offsetof(struct epoch, rounds) == 77912, "layout");
_Static_assert(offsetof(struct state, config) == 184 && offsetof(struct state, epoch) == 5752, "layout");
_Static_assert(offsetof(struct state, pending) == 210992 && offsetof(struct state, authority) == 280640, "layout");
_Static_assert(offsetof(struct state, model) == 336032 && sizeof(struct state) == 344472, "layout");

#endif
