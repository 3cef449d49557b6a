package localnet

import (
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
)

// squatting creates accounts at derived addresses that have already received lamports.
func squatting(c *chain, program identity.Key) []step {
	payer, poor := c.payer, keyOf("poor")
	exempt, owner := c.config.Rent.Minimum(0), public(program)
	var steps []step
	add := func(name, want string, signer identity.Key, instructions ...transaction.Instruction) {
		keys := []identity.Key{payer}
		if signer.ID() != payer.ID() {
			keys = append(keys, signer)
		}
		steps = append(steps, step{name: name, keys: keys, instructions: instructions, want: want})
	}
	must := func(in transaction.Instruction, err error) transaction.Instruction {
		if err != nil {
			c.Fatal(err)
		}
		return in
	}
	allocate := func(seed string, base identity.Key, change func(in *transaction.Instruction)) transaction.Instruction {
		in := must(transaction.AllocateWithSeed(public(base), seed, 300, owner))
		if in.Accounts = slices.Clone(in.Accounts); change != nil {
			change(&in)
		}
		return in
	}
	const inUse, mismatch = `{"InstructionError":[0,{"Custom":0}]}`, `{"InstructionError":[0,{"Custom":5}]}`
	const noRent, unsigned, readOnly = `{"InsufficientFundsForRent":{"account_index":1}}`, `{"InstructionError":[0,"MissingRequiredSignature"]}`, `{"InstructionError":[0,"ReadonlyDataModified"]}`

	at := allocate("run-3", payer, nil).Accounts[0].Key
	add("lamports of a squatter", "", payer, transaction.Transfer(public(payer), at, exempt))
	add("account with seed where lamports are", inUse, payer,
		must(transaction.CreateAccountWithSeed(public(payer), public(payer), "run-3", sol, 300, owner)))
	add("allocate below rent", noRent, payer, allocate("run-3", payer, nil))
	add("allocate for another base", mismatch, poor, allocate("run-3", poor, func(in *transaction.Instruction) { in.Accounts[0].Key = at }))
	add("allocate for another seed", mismatch, payer, allocate("run-4", payer, func(in *transaction.Instruction) { in.Accounts[0].Key = at }))
	add("allocate without signature", unsigned, payer, allocate("run-3", poor, func(in *transaction.Instruction) { in.Accounts[1].Signer = false }))
	add("allocate what is read-only", readOnly, payer, allocate("run-3", payer, func(in *transaction.Instruction) { in.Accounts[0].Writable = false }))
	made, err := transaction.MakeWithSeed(public(payer), public(payer), "run-3", c.config.Rent.Minimum(300)-exempt, 300, owner)
	if err != nil {
		c.Fatal(err)
	}
	add("allocate where lamports are", "", payer, made...)
	add("allocate again", inUse, payer, must(transaction.AllocateWithSeed(public(payer), "run-3", 301, owner)))
	add("allocate without lamports, which nothing is left of", "", payer, allocate("run-5", payer, nil))
	assign := allocate("run-6", payer, func(in *transaction.Instruction) { // assigns by seed: the same without the size
		size := len(in.Data) - len(owner) - 8
		in.Data = append(le.AppendUint32(nil, systemAssignWithSeed), append(slices.Clone(in.Data[4:size]), owner[:]...)...)
	})
	add("assign with seed", "", payer, transaction.Transfer(public(payer), assign.Accounts[0].Key, exempt), assign)
	add("allocate what was assigned", inUse, payer, allocate("run-6", payer, nil))
	return steps
}
