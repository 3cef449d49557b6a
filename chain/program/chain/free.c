// Freeing the accounts of runs and grants.

#include "program.h"

// pay_out moves all lamports. The sum over all accounts is far below 2^64, so it cannot overflow.
void pay_out(struct input_account *from, struct input_account *to) {
	to->lamports += from->lamports;
	from->lamports = 0;
}

// fixed_account returns the account of a run or a grant of any version. Callers may read only the
// fields up to main, which is the grantor of a grant.
static uint64_t fixed_account(const struct call *c, struct account **a) {
	*a = (struct account *)c->target->data;
	if (c->target->size < offsetof(struct account, slot)) return INVALID_ACCOUNT_DATA;
	if ((*a)->magic != RUN_MAGIC && (*a)->magic != GRANT_MAGIC && (*a)->magic != FREED_MAGIC) return (*a)->magic ? INVALID_ACCOUNT_DATA : UNINITIALIZED_ACCOUNT;
	return key_equal(&c->signer->address, &(*a)->main) ? 0 : INCORRECT_AUTHORITY;
}

// run_free frees the account of a run that is closed or never began, or the account of a grant. The account still exists until
// the transaction ends. Its remaining contents allow only its owner to use it.
uint64_t run_free(const struct call *c) {
	struct account *a;
	uint64_t refused = fixed_account(c, &a);
	if (refused) return refused;
	if (c->size > 0) return INVALID_INSTRUCTION_DATA;
	if (a->magic == RUN_MAGIC && a->run_state != UNINITIALIZED && !(a->run_state == FINISHED && a->closed)) return ERR_WRONG_STATE;
	struct key main = a->main;
	host_zero(a, c->target->size);
	a->magic = FREED_MAGIC;
	a->main = main;
	pay_out(c->target, c->third);
	return 0;
}

// run_migrate is reserved for moving a paused run to another version of the account: target u32. No
// other version exists yet.
uint64_t run_migrate(const struct call *c) {
	struct account *a;
	uint64_t refused = fixed_account(c, &a);
	if (refused) return refused;
	if (c->size != 4) return INVALID_INSTRUCTION_DATA;
	if (a->magic != RUN_MAGIC || a->run_state != PAUSED) return ERR_WRONG_STATE;
	return ERR_NO_MIGRATION;
}
