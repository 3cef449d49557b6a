// Announcements of clients' network addresses.

#include "program.h"

// addresses_valid ports backend.CheckAddrs. It also rejects bytes after the last address.
static bool addresses_valid(const uint8_t *bytes, uint64_t size) {
	if (size == 0 || bytes[0] > MAX_ADDRESSES) return false;
	uint64_t at = 1, total = 0;
	for (uint32_t left = bytes[0]; left > 0; left--) {
		if (size - at < 2) return false;
		uint64_t length = uint16_at(bytes + at);
		at += 2;
		total += length;
		if (length == 0 || length > MAX_ADDRESS_LENGTH || total > MAX_ADDRESSES_TOTAL || length > size - at) return false;
		for (uint64_t end = at + length; at < end; at++)
			if (bytes[at] <= ' ' || bytes[at] > '~') return false;
	}
	return at == size;
}

// is_run reports whether an unchecked account is a run of this program.
static bool is_run(const struct input_account *account, const struct key *program) {
	const struct account *a = (const struct account *)account->data;
	return key_equal(&account->owner, program) && account->size == sizeof *a && a->magic == RUN_MAGIC && a->version == ACCOUNT_VERSION;
}

// peer_announce stores the signer's addresses for a run: count u8, then for each address length u16
// and bytes.
uint64_t peer_announce(const struct call *c) {
	struct peer *p = (struct peer *)c->target->data;
	const struct key *run = &c->third->address, *owner = &c->signer->address;
	uint64_t now;
	if (!is_run(c->third, c->program)) return INVALID_ARGUMENT;
	if (c->target->size != sizeof *p) return INVALID_ACCOUNT_DATA;
	if (p->magic != 0 && p->magic != PEER_MAGIC) return INVALID_ACCOUNT_DATA;
	if (p->magic != 0 && p->version != ACCOUNT_VERSION) return ERR_OTHER_VERSION;
	if (!is_address_with_seed_of(&c->target->address, owner, run, c->program)) return INVALID_SEEDS;
	if (!addresses_valid(c->data, c->size)) return INVALID_INSTRUCTION_DATA;
	p->magic = PEER_MAGIC;
	p->version = ACCOUNT_VERSION;
	p->size = (uint32_t)c->size;
	p->run = *run;
	p->owner = *owner;
	host_zero(p->addresses, sizeof p->addresses);
	host_move(p->addresses, c->data, c->size);
	return read_clock(&p->slot, &now);
}

// peer_forget frees a peer account of any version, like run_free for a run.
uint64_t peer_forget(const struct call *c) {
	struct peer *p = (struct peer *)c->target->data;
	if (c->target->size < offsetof(struct peer, slot)) return INVALID_ACCOUNT_DATA;
	if (p->magic == 0) return UNINITIALIZED_ACCOUNT;
	if (p->magic != PEER_MAGIC && p->magic != FREED_MAGIC) return INVALID_ACCOUNT_DATA;
	if (!key_equal(&c->signer->address, &p->owner)) return INCORRECT_AUTHORITY;
	if (c->size > 0) return INVALID_INSTRUCTION_DATA;
	struct key owner = p->owner;
	host_zero(p, c->target->size);
	p->magic = FREED_MAGIC;
	p->owner = owner;
	pay_out(c->target, c->third);
	return 0;
}
