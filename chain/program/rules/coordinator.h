// The rules of a run: a port of the Go packages coordinator, assign and bloom, and of the decoding
// of actions in package wire. The name of a function is its Go receiver or package, then its Go
// name: State.removeLeavers is state_remove_leavers. The files, and the functions in each file,
// have the order of the Go source.
#ifndef PSYCHE_COORDINATOR_H
#define PSYCHE_COORDINATOR_H

#include "host.h"
#include "state.h"

// The functions that a host of a run calls. state_genesis expects a state of zeros. A refused call
// changes nothing. state_tick reports whether the state changed.
enum code state_genesis(struct state *s, const uint8_t *bytes, uint64_t size);
enum code state_apply(struct state *s, const struct key *from, uint64_t nonce, const uint8_t *action, uint64_t size);
bool state_tick(struct state *s, uint64_t now, const struct key *draw);
bool state_due(struct state *s, uint64_t now, uint64_t *at);

// decode.c: a decoded action or genesis. Pointers refer to the input.
enum action_kind {
	JOIN = 1,
	READY,
	WITNESS_ROUND,
	HEALTH_CHECK,
	REPORT_CHECKPOINT,
	WITHDRAW,
	SET_PAUSED,
	UPDATE_CONFIG,
	AUTHORIZE,
	SET_DELEGATES,
	EJECT,
	CLOSE,
	REPORT_UPLOAD,
	EQUIVOCATION = 14,
	RETURN = 15,
	ACCUSE = 18,
	VOTE = 20,
	ADMIT = 21,
	OFFER = 22,
};

// update is an UpdateConfig. The names in its checkpoint have at most MAX_REPO_LENGTH bytes
// together.
struct update {
	struct config config;
	uint32_t max_seq_len, cold_start_warmup_steps;
	struct checkpoint checkpoint;
	const uint8_t *definition;
	uint32_t definition_size;
};

struct location {
	uint8_t kind;
	uint32_t repo_length, revision_length;
	const uint8_t *repo, *revision;
};

// proof is the content of an Equivocation: two announcements, each signed by its trainer.
struct proof {
	const uint8_t *signature[2], *message[2];
	uint32_t size[2]; // of the messages
};

struct action {
	enum action_kind kind;
	bool flag;              // Paused, Allowed, Guilty
	uint8_t fault, level;
	uint32_t number;        // Epoch, Step, Number
	struct key id;          // Holds, Reveal, Digest, Client, Grantee
	struct key commitment;  // Commitment, Next
	struct key grant;       // Grant
	const uint8_t *witness; // two filters, root, replica
	uint16_t loss;          // a claim
	uint32_t speed;         // a claim
	const uint8_t *ids;     // Clients, Delegates
	uint32_t id_count;
	struct location location;
	struct proof proof;
	struct update update;
};

struct genesis {
	struct key host, main, join;
	bool permissioned, paused;
	struct progress progress;
	const uint8_t *run_id;
	uint32_t run_id_length;
	struct update update;
};

enum code decode_action(struct action *a, const uint8_t *bytes, uint64_t size);
enum code decode_genesis(struct genesis *g, const uint8_t *bytes, uint64_t size);

// list.c
struct lookup {
	struct client *list;
	uint32_t count, next;
};
void list_delete(void *list, uint64_t element, uint32_t *count, uint32_t i);
void client_add(struct clients *c, const struct client *added);
void client_delete(struct clients *c, uint32_t i);
void client_forget_report(struct client *c);
int32_t index_of(const struct clients *c, const struct key *id);
int32_t index_of_key(const struct key *keys, uint32_t count, const struct key *id);
struct client *lookup_next(struct lookup *l, const struct key *id);
struct client *lookup_find(struct lookup *l, const struct key *id);

// id_set is a hash table that finds the keys of a list of clients.
struct id_set {
	struct client *list;
	uint16_t *places; // index in list + 1; 0 means free
	uint64_t factor;
};
void new_id_set(struct id_set *set, struct client *list, uint32_t count, uint64_t seed);
struct client *id_set_find(const struct id_set *set, const struct key *id);

static inline bool key_equal(const struct key *a, const struct key *b) {
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] && a->word[3] == b->word[3];
}

static inline bool key_is_zero(const struct key *k) { return (k->word[0] | k->word[1] | k->word[2] | k->word[3]) == 0; }

// member_set_has ports MemberSet.Has for a valid member number.
static inline bool member_set_has(const uint8_t *set, uint32_t member) { return set[member / 8] >> (member % 8) & 1; }

static inline void member_set_add(uint8_t *set, uint32_t member) { set[member / 8] |= (uint8_t)(1u << member % 8); }

static inline uint32_t member_set_count(const uint8_t *set) {
	uint32_t count = 0;
	for (uint32_t i = 0; i < SET_SIZE; i++) count += (uint32_t)__builtin_popcount(set[i]);
	return count;
}

static inline void member_set_remove(uint8_t *set, uint32_t member) { set[member / 8] &= (uint8_t)~(1u << member % 8); }

// Integers in actions, which are not aligned.
static inline uint16_t uint16_at(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t uint32_at(const uint8_t *p) { return uint16_at(p) | (uint32_t)uint16_at(p + 2) << 16; }
static inline uint64_t uint64_at(const uint8_t *p) { return uint32_at(p) | (uint64_t)uint32_at(p + 4) << 32; }

// shuffle.c, share.c, assign.c: package assign, for at most MAX_CLIENTS members
enum salt { SALT_COMMITTEE, SALT_WITNESS, SALT_BATCH, SALT_JURY };
void assign_in_order(uint32_t total, uint32_t count, uint64_t seed, enum salt salt, uint8_t order[MAX_CLIENTS]);
void assign_witnesses(uint64_t seed, uint32_t members, uint32_t elected, uint8_t set[SET_SIZE]);
void assign_owners(const struct round *r, uint32_t verification_percent, uint8_t set[SET_SIZE]);
enum { SHARE_RANGE = 32 };
void assign_cut_fastest(uint8_t *levels, uint32_t count);
uint32_t assign_reference(const uint16_t with[UINT8_MAX + 1], uint32_t count);
void assign_share_owners(const struct round *r, const uint8_t *trainers, uint32_t count, uint8_t set[SET_SIZE]);
uint32_t assign_batches(const struct round *r, uint32_t verification_percent, uint8_t order[MAX_CLIENTS], uint32_t sizes[MAX_CLIENTS]);
void assign_share_sizes(const struct round *r, const uint8_t *order, uint32_t count, uint32_t sizes[MAX_CLIENTS]);
uint32_t assign_elected_witnesses(uint32_t members, uint32_t witness_nodes);
uint32_t assign_quorum(uint32_t n);

// bloom.c: package bloom
enum { FILTER_HASHES = 7, FILTER_BITS = 64 * FILTER_WORDS };
struct filter_keys {
	uint64_t key[FILTER_HASHES];
};
struct filter_positions {
	uint16_t bit[FILTER_HASHES];
};
void bloom_new_keys(struct filter_keys *k, uint64_t seed);
void bloom_positions(const struct filter_keys *k, const struct key *item, struct filter_positions *out);
bool bloom_contains_positions(const struct filter *f, const struct filter_positions *positions);
uint32_t bloom_ones_count(const struct filter *f);
void bloom_transpose_word(uint32_t place, uint64_t row[MAX_WITNESSES], uint32_t owners[FILTER_BITS]);

// config.c
bool config_validate(const struct config *c);
bool update_validate(const struct update *u);
uint32_t config_batch_size(const struct config *c, uint64_t data_index, uint32_t max_seq_len);
bool is_origin(uint8_t kind);
bool from_peers(uint8_t kind);
uint8_t over_p2p(uint8_t kind);
bool validate_run_id(const uint8_t *run_id, uint32_t length);

// machine.c
void state_set_update(struct state *s, const struct update *u);
struct round *state_current_round(struct state *s);
struct round *state_round_of_step(struct state *s, uint32_t step);
bool state_active(const struct state *s);
struct client *state_member(struct state *s, const struct key *id);
uint32_t state_healthy_count(const struct state *s);
bool state_is_healthy(struct state *s, const struct key *id);

// apply.c
enum { CLIENT_LISTS = 4 };
struct clients *state_client_list(struct state *s, uint32_t i);
void state_depart(struct state *s, const struct client *client);

// audit.c
void state_seal_challenge(struct state *s, struct round *round);

// admit.c
uint32_t authority_granted(const struct authority *a, const struct key *grant, const struct key *without);
enum code state_admit(struct state *s, const struct key *from, const struct action *a);

// authority.c
bool authority_may_join(const struct authority *a, const struct key *id);
struct authorization *authority_authorization(struct authority *a, const struct key *grantee);
enum code state_set_paused(struct state *s, const struct key *from, const struct action *a);
enum code state_update_config(struct state *s, const struct key *from, const struct action *a);
void checkpoint_origin(const struct checkpoint *c, struct checkpoint *origin);
enum code state_authorize(struct state *s, const struct key *from, const struct action *a);
enum code state_set_authorized(struct state *s, const struct key *grantee, const struct key *delegate, bool allowed);
enum code state_set_delegates(struct state *s, const struct key *from, const struct action *a);
enum code state_eject(struct state *s, const struct key *from, const struct action *a);
enum code state_equivocate(struct state *s, const struct key *from, const struct action *a);
bool state_is_known(struct state *s, const struct key *id);
void state_expel(struct state *s, const struct key *id, enum ejection_reason reason);
bool state_is_ejected(const struct state *s, const struct key *id);
void state_forget_ejections(struct state *s);
enum code state_close(struct state *s, const struct key *from);

// checkpoint.c
void client_keep_claim(struct client *c, const struct checkpoint *from);
enum code state_report(struct state *s, const struct key *from, const struct action *a);
bool state_has_reported(const struct state *s, const struct client *c);
bool state_all_reported(const struct state *s);
void state_finalize_checkpoint(struct state *s);

// coldstart.c
void state_warm(struct state *s, struct round *round);

// due.c
struct phase {
	bool over, endless, unnoticed;
	uint64_t since, most;
};
void state_phase(struct state *s, struct phase *p);
bool phase_is_over(const struct phase *p, uint64_t now);

// epoch.c
bool state_remove_leavers(struct state *s, uint32_t height);
void state_members_to_pending(struct state *s);
void state_forgive(struct state *s);
void state_drop_silent(struct state *s);

// health.c
struct room {
	uint32_t drop, slow;
};
void state_room(const struct state *s, struct room *left);
bool client_after_finding(struct client *c, struct room *left, bool denied);
bool round_proved_missing(const struct round *r, uint32_t score);
uint32_t round_score(const struct round *r, const struct filter_keys *keys, const struct key *id);
uint32_t round_score_positions(const struct round *r, const struct filter_positions *positions);
bool round_denied(const struct round *r, uint32_t score);
uint32_t state_seats(const struct state *s);
uint32_t state_fewest_reports(const struct state *s);
void state_keep_findings(struct state *s);
enum code state_health_check(struct state *s, const struct key *from, const struct action *a);

// next.c
bool state_ends_before(const struct state *s, uint32_t step);
void state_start_round(struct state *s, uint64_t now, const struct key *draw);

// offer.c
enum outcome { NO_BATCH, RESULT_COUNTS, RESULT_UNPROVEN, RESULT_DENIED }; // ports the Go type of the same name
enum code state_offer(struct state *s, const struct key *from, const struct action *a);
bool round_awaits(const struct round *r, uint32_t member, const struct client *c);
void state_seal(struct state *s, struct round *round);

// retry.c
void state_retries(const struct state *s, struct round *round);
void state_take(struct state *s, const struct round *round);
void state_requeue(struct state *s, const struct round *round, const uint8_t *outcomes);
void state_mark(struct state *s, uint32_t step, uint64_t data);
void state_mark_commit(struct state *s, uint32_t step);
void state_roll_back(struct state *s, uint32_t step);

// reveal.c
bool client_reveals(const struct client *c, const struct key *value);
bool round_add_reveal(struct round *r, struct client *client, const struct key *value);
void state_add_reveal(struct state *s, struct client *client, const struct action *a);

// round.c
void round_elected_set(const struct round *r, const struct config *c, uint8_t set[SET_SIZE]);
bool round_member_index(const struct round *r, const struct key *id, uint32_t *member);
bool round_overfills(const struct round *r, const struct witness *w);
bool round_has_quorum(const struct round *r);

// seats.c
bool client_is_new(const struct client *c);
uint32_t state_probation(const struct state *s);
uint32_t state_probation_end(const struct state *s);
bool state_on_probation(const struct state *s, const struct client *c, uint32_t step);
void state_credit(const struct state *s, struct client *joins);
bool state_has_office(const struct state *s, const struct key *id);
bool state_evict_if_full(struct state *s, const struct key *from);
void state_make_room(struct state *s, uint32_t room);
void state_seat_pending(struct state *s);

// tick.c
bool elapsed(uint64_t start, uint64_t now, uint64_t wait);
void state_enter(struct state *s, enum run_state to, uint64_t now);
uint32_t state_ready_count(const struct state *s);
bool state_quorum_is_out_of_reach(struct state *s);
bool state_no_witness_is_awaited(struct state *s);

// trial.c
enum code state_accuse(struct state *s, const struct key *from, const struct action *a);
enum code state_vote(struct state *s, const struct key *from, const struct action *a);
void state_draw_juries(struct state *s);
void state_end_trials(struct state *s, uint64_t now);

// upload.c
enum code state_report_upload(struct state *s, const struct key *from, const struct action *a);
uint64_t state_members_time(const struct state *s);
bool state_enough_wait(const struct state *s);
bool state_waits_again(const struct state *s);
void state_fall_back_if_model_is_gone(struct state *s);
void state_count_try(struct state *s);
void state_remember(struct state *s, uint32_t step, const struct key *digest);
void state_recorded_as(const struct state *s, const struct key *digest, struct client *c);
void state_note_rollback_gap(struct state *s);

#endif
