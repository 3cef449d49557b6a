// The end of a run's account.

#include "program.h"

// pay_out moves all lamports. Their sum over all accounts is far below 2^64.
void pay_out(struct input_account *from, struct input_account *to) {
	to->lamports += from->lamports;
	from->lamports = 0;
}

// fixed_account returns an account of any version, of which only the fields up to main are read.
static uint64_t fixed_account(const struct call *c, struct account **a) {
	*a = (struct account *)c->target->data;
	if (c->target->size < offsetof(struct account, slot)) return INVALID_ACCOUNT_DATA;
	if ((*a)->magic != RUN_MAGIC && (*a)->magic != FREED_MAGIC) return (*a)->magic ? INVALID_ACCOUNT_DATA : UNINITIALIZED_ACCOUNT;
	return key_equal(&c->signer->address, &(*a)->main) ? 0 : INCORRECT_AUTHORITY;
}

// run_free ends the account of a run that is closed or never began. Until the transaction ends the
// account is still there; what is left in it lets nobody but its owner do anything with it.
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

// run_migrate would bring a paused run to another version of the account: target u32. There is no
// other version yet.
uint64_t run_migrate(const struct call *c) {
	struct account *a;
	uint64_t refused = fixed_account(c, &a);
	if (refused) return refused;
	if (c->size != 4) return INVALID_INSTRUCTION_DATA;
	if (a->magic != RUN_MAGIC || a->run_state != PAUSED) return ERR_WRONG_STATE;
	return ERR_NO_MIGRATION;
}
