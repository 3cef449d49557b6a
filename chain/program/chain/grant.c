// Grants: accounts that authorize keys for all runs of a join authority.

#include "program.h"

// grant_room returns how many delegates fit into a grant's account of a size.
static uint64_t grant_room(uint64_t size) { return (size - sizeof(struct grant)) / sizeof(struct key); }

// grant_account returns the grant in the target account.
static uint64_t grant_account(const struct call *c, struct grant **g) {
	*g = (struct grant *)c->target->data;
	if (c->target->size < sizeof **g) return INVALID_ACCOUNT_DATA;
	if ((*g)->magic == 0) return UNINITIALIZED_ACCOUNT;
	if ((*g)->magic != GRANT_MAGIC) return INVALID_ACCOUNT_DATA;
	return (*g)->version == ACCOUNT_VERSION ? 0 : ERR_OTHER_VERSION;
}

// grant_create turns an account of zeros into the signer's grant for a key: grantee. The account's
// size limits the number of delegates.
uint64_t grant_create(const struct call *c) {
	struct grant *g = (struct grant *)c->target->data;
	struct key grantee;
	uint64_t size = c->target->size;
	if (c->size != sizeof grantee) return INVALID_INSTRUCTION_DATA;
	if (size < sizeof *g || size > sizeof *g + MAX_GRANT_DELEGATES * sizeof(struct key) || size % sizeof(struct key) != sizeof *g % sizeof(struct key)) return INVALID_ACCOUNT_DATA;
	if (g->magic != 0 || !host_equal(c->target->data, c->target->data + 8, size - 8)) return ACCOUNT_ALREADY_INITIALIZED;
	host_move(&grantee, c->data, sizeof grantee);
	if (!is_address_with_seed_of(&c->target->address, &c->signer->address, &grantee, c->program)) return INVALID_SEEDS;
	g->magic = GRANT_MAGIC;
	g->version = ACCOUNT_VERSION;
	g->grantor = c->signer->address;
	g->grantee = grantee;
	return 0;
}

// grant_delegate changes the delegates of the signer, which must be the grantee: clear u8, then the
// keys to add. It skips keys that are already delegates.
uint64_t grant_delegate(const struct call *c) {
	struct grant *g;
	uint64_t refused = grant_account(c, &g);
	if (refused) return refused;
	if (!key_equal(&c->signer->address, &g->grantee)) return INCORRECT_AUTHORITY;
	if (c->size % sizeof(struct key) != 1 || c->data[0] > 1) return INVALID_INSTRUCTION_DATA;
	if (c->data[0]) {
		host_zero(g->delegates, g->count * sizeof(struct key));
		g->count = 0;
	}
	uint64_t room = grant_room(c->target->size);
	for (uint64_t at = 1; at < c->size; at += sizeof(struct key)) {
		struct key added;
		host_move(&added, c->data + at, sizeof added);
		if (index_of_key(g->delegates, g->count, &added) >= 0) continue;
		if (g->count >= room) return ERR_FULL;
		g->delegates[g->count++] = added;
	}
	return 0;
}

// covers reports whether an account is a grant of the join authority that covers the client. The
// account is unchecked: it may be missing, too short, or belong to any program. Only grant_create
// writes the magic into an account of this program.
static bool covers(const struct input_account *account, const struct key *program, const struct key *join, const struct key *client) {
	const struct grant *g = (const struct grant *)account->data;
	if (!key_equal(&account->owner, program) || account->size < sizeof *g) return false;
	if (g->magic != GRANT_MAGIC || g->version != ACCOUNT_VERSION || g->count > grant_room(account->size)) return false;
	return key_equal(&g->grantor, join) && (key_equal(&g->grantee, client) || index_of_key(g->delegates, g->count, client) >= 0);
}

// has_room reports whether a grant has room for one more key: it admits at most one key for the
// grantee and one for each possible delegate. Otherwise a grantee could replace its delegates after
// their admission, until it fills the run.
static bool has_room(const struct call *c, const struct authority *authority, const struct action *a) {
	uint64_t room = grant_room(c->third->size);
	return authority->authorization_count <= room || authority_granted(authority, &a->grant, &a->id) <= room;
}

// check_grant requires that the third account is the grant that an Admit names. The grant must cover
// the client if the Admit sets Allowed, and must not cover it otherwise.
uint64_t check_grant(const struct call *c, const struct state *s) {
	struct action a;
	enum code refused = decode_action(&a, c->data + 8, c->size - 8);
	if (refused) return refused;
	if (!key_equal(&c->third->address, &a.grant)) return INVALID_ARGUMENT;
	if (covers(c->third, c->program, &s->authority.join, &a.id) != a.flag) return ERR_GRANT;
	return !a.flag || has_room(c, &s->authority, &a) ? 0 : ERR_FULL;
}
