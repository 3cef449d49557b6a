// The program's input: the checks of an instruction's accounts that do not depend on their
// contents.

#include "program.h"

enum {
	NOT_DUPLICATE = 0xff,
	SPARE = 10240, // after an account's data, for growth
};

// demands are an instruction's requirements. third_may_sign allows the third account to be the
// signer if the account only receives lamports.
struct demands {
	uint8_t accounts;
	bool third_writable, third_may_sign;
};

static bool demands_of(uint8_t instruction, struct demands *d) {
	d->accounts = 2;
	d->third_writable = d->third_may_sign = false;
	switch (instruction) {
	case INIT:
	case WRITE:
	case GENESIS:
	case ACT:
	case MIGRATE:
	case GRANT:
	case DELEGATE: return true;
	case TICK: d->accounts = 1; return true;
	case FREE:
	case FORGET: d->third_writable = d->third_may_sign = true; d->accounts = 3; return true;
	case ANNOUNCE: d->accounts = 3; return true;
	}
	return false;
}

// input_list is the list of accounts of an input. same holds the index of the first account equal
// to each one.
struct input_list {
	uint64_t count;
	struct input_account *account[MAX_ACCOUNTS];
	uint8_t same[MAX_ACCOUNTS];
};

// read_accounts returns the address after the accounts, or NULL if there are too many accounts.
static uint8_t *read_accounts(struct input_list *l, uint8_t *input) {
	l->count = *(uint64_t *)input;
	if (l->count > MAX_ACCOUNTS) return NULL;
	input += 8;
	for (uint8_t i = 0; i < l->count; i++) {
		if (*input != NOT_DUPLICATE) {
			if (*input >= i) return NULL;
			l->same[i] = *input;
			l->account[i] = l->account[*input];
			input += 8;
			continue;
		}
		struct input_account *account = (struct input_account *)input;
		l->same[i] = i;
		l->account[i] = account;
		input += sizeof *account + account->size + SPARE;
		input += -(uint64_t)input % 8 + 8; // to the next multiple of 8, then past the rent epoch, which is unused
	}
	return input;
}

static uint64_t check_accounts(const struct input_list *l, const struct demands *d) {
	if (l->count < d->accounts) return NOT_ENOUGH_ACCOUNT_KEYS;
	if (l->count > d->accounts) return INVALID_ARGUMENT;
	if (d->accounts > 1 && l->same[1] != 1) return INVALID_ARGUMENT;
	if (d->accounts > 2 && l->same[2] != 2 && !(d->third_may_sign && l->same[2] == 1)) return INVALID_ARGUMENT;
	if (!l->account[0]->writable || (d->third_writable && !l->account[2]->writable)) return IMMUTABLE;
	if (d->accounts > 1 && !l->account[1]->signer) return MISSING_REQUIRED_SIGNATURE;
	return 0;
}

// read_call reads an input. An instruction must have exactly the accounts that it needs. They must
// be distinct, and signed or writable if the instruction requires it. The program must own the
// target account.
uint64_t read_call(struct call *c, uint8_t *input) {
	struct input_list l;
	struct demands d;
	const uint8_t *rest = read_accounts(&l, input);
	if (!rest) return INVALID_ARGUMENT;
	c->size = *(const uint64_t *)rest;
	c->data = rest + 8;
	c->program = (const struct key *)(c->data + c->size);
	if (c->size == 0 || !demands_of(c->data[0], &d)) return INVALID_INSTRUCTION_DATA;
	if (c->data[0] == ACT && c->size > 9 && (c->data[9] == EQUIVOCATION || c->data[9] == ADMIT)) d.accounts = 3; // the kind of action follows the nonce
	uint64_t refused = check_accounts(&l, &d);
	if (refused) return refused;
	c->target = l.account[0];
	c->signer = d.accounts > 1 ? l.account[1] : NULL;
	c->third = d.accounts > 2 ? l.account[2] : NULL;
	if (!key_equal(&c->target->owner, c->program)) return INVALID_ACCOUNT_OWNER;
	c->instruction = *c->data++;
	c->size--;
	return 0;
}
