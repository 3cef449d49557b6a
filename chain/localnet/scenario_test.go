package localnet

import (
	"crypto/ed25519"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
)

// step is a transaction of the scenario, or the end of a slot.
type step struct {
	name         string
	slots        int // number of slots to end, instead of a transaction
	keys         []identity.Key
	instructions []transaction.Instruction
	want         string // its error, as JSON; "" for none
}

// scenario returns a history that exercises every rule of transactions and of the chain's own
// programs. The program of probe.c is deployed during it.
func scenario(c *chain) []step {
	payer, poor, other := c.payer, keyOf("poor"), keyOf("other")
	program, buffer := keyOf("program"), keyOf("buffer")
	data, readOnly := keyOf("data"), keyOf("read-only")
	do := func(command byte, n uint64, accounts ...transaction.AccountMeta) transaction.Instruction {
		return probeDo(public(program), command, n, accounts...)
	}
	var steps []step
	add := func(name, want string, keys []identity.Key, instructions ...transaction.Instruction) {
		steps = append(steps, step{name: name, keys: keys, instructions: instructions, want: want})
	}
	by := func(keys ...identity.Key) []identity.Key { return keys }
	must := func(in transaction.Instruction, err error) transaction.Instruction {
		if err != nil {
			c.Fatal(err)
		}
		return in
	}
	custom := func(index, code string) string { return `{"InstructionError":[` + index + `,{"Custom":` + code + `}]}` }
	failed := func(name string) string { return `{"InstructionError":[0,"` + name + `"]}` }

	exempt := c.config.Rent.Minimum(0)
	add("transfer", "", by(payer), transaction.Transfer(public(payer), public(poor), 2*exempt))
	add("transfer of much", custom("0", "1"), by(payer), transaction.Transfer(public(payer), public(poor), 5000*sol))
	add("transfer of what is too little", `{"InsufficientFundsForRent":{"account_index":1}}`, by(payer), transaction.Transfer(public(payer), public(other), exempt-1))
	add("transfer to oneself", "", by(payer), transaction.Transfer(public(payer), public(payer), 10))
	add("payer without lamports", `"AccountNotFound"`, by(keyOf("nobody")), transaction.ComputeUnitLimit(1000))
	add("payer left with too little", `{"InsufficientFundsForRent":{"account_index":0}}`, by(poor), transaction.ComputeUnitLimit(1_400_000), transaction.ComputeUnitPrice(900_000))
	add("fee above all", `"InsufficientFundsForFee"`, by(poor), transaction.ComputeUnitLimit(1_400_000), transaction.ComputeUnitPrice(1_000_000_000))
	add("fee above all numbers", `"InsufficientFundsForFee"`, by(poor), transaction.ComputeUnitLimit(1_400_000), transaction.ComputeUnitPrice(1<<64-1))
	add("priority", "", by(payer), transaction.ComputeUnitLimit(500), transaction.ComputeUnitPrice(12_345), transaction.Transfer(public(payer), public(poor), 1))
	signed := []byte("a message")
	signature := ed25519.Sign(payer.Private(), signed)
	key := public(payer)
	verify := func(change func(data []byte)) transaction.Instruction {
		data := []byte{1, 0}
		for _, field := range []uint16{16, 0xffff, 16 + 64, 0xffff, 16 + 64 + 32, uint16(len(signed)), 0xffff} {
			data = le.AppendUint16(data, field)
		}
		data = append(append(append(data, signature...), key[:]...), signed...)
		change(data)
		return transaction.Instruction{Program: transaction.Ed25519Program, Data: data}
	}
	unchanged := func([]byte) {}
	add("signature that verifies", "", by(payer), verify(unchanged))
	add("signature that verifies, and a transfer", "", by(payer), verify(unchanged), transaction.Transfer(public(payer), public(poor), 3))
	add("signature in another instruction", "", by(payer), transaction.ComputeUnitLimit(5000), verify(func(data []byte) { data[4], data[5] = 1, 0 }))
	add("signature of another message", custom("0", "2"), by(payer), verify(func(data []byte) { data[len(data)-1] ^= 1 }))
	add("signature that is not there", custom("0", "3"), by(payer), verify(func(data []byte) { data[2] = 200 }))
	add("signature in no instruction", custom("0", "3"), by(payer), verify(func(data []byte) { data[4], data[5] = 9, 0 }))
	add("more signatures than fields", custom("0", "4"), by(payer), verify(func(data []byte) { data[0] = 99 }))
	add("signatures of nothing", "", by(payer), transaction.Instruction{Program: transaction.Ed25519Program, Data: []byte{0, 0}})
	add("no signatures and more", custom("0", "4"), by(payer), verify(func(data []byte) { data[0] = 0 }))
	add("half a number of signatures", custom("0", "4"), by(payer), transaction.Instruction{Program: transaction.Ed25519Program, Data: []byte{0}})
	add("limit below what is needed", `{"InstructionError":[2,"ComputationalBudgetExceeded"]}`, by(payer), transaction.ComputeUnitLimit(400), transaction.ComputeUnitPrice(1), transaction.Transfer(public(payer), public(poor), 2))
	add("two limits", `{"DuplicateInstruction":1}`, by(payer), transaction.ComputeUnitLimit(400), transaction.ComputeUnitLimit(401))
	add("budget of nothing", failed("InvalidInstructionData"), by(payer), transaction.Instruction{Program: transaction.ComputeBudgetProgram, Data: []byte{9}})
	add("unknown instruction", failed("InvalidInstructionData"), by(payer), transaction.Instruction{Program: transaction.SystemProgram, Data: []byte{99, 0, 0, 0}})
	add("half an instruction", failed("InvalidInstructionData"), by(payer), transaction.Instruction{Program: transaction.SystemProgram, Data: []byte{2, 0, 0, 0, 1}})
	add("accounts missing", failed("MissingAccount"), by(payer), transaction.Instruction{Program: transaction.SystemProgram, Data: transaction.Transfer(public(payer), public(poor), 1).Data, Accounts: []transaction.AccountMeta{writable(public(payer))}})
	unsigned := transaction.Transfer(public(other), public(poor), 1)
	unsigned.Accounts[0].Signer = false
	add("transfer without signature", failed("MissingRequiredSignature"), by(payer), unsigned)
	closed := transaction.Transfer(public(payer), public(poor), 1)
	closed.Accounts[1].Writable = false
	add("transfer to read-only", failed("ReadonlyLamportChange"), by(payer), closed)
	none := transaction.Transfer(public(payer), public(poor), 0)
	none.Accounts[1].Writable = false
	add("transfer of nothing to read-only", failed("ReadonlyLamportChange"), by(payer), none)
	add("buffer of nothing", failed("InvalidAccountData"), by(payer), transaction.InitializeBuffer(public(poor), public(payer)))

	seeded := func(seed string, lamports, space uint64) transaction.Instruction {
		return must(transaction.CreateAccountWithSeed(public(payer), public(payer), seed, lamports, space, public(program)))
	}
	add("account with seed", "", by(payer), seeded("run-1", c.config.Rent.Minimum(5000), 5000))
	add("account with seed again", custom("0", "0"), by(payer), seeded("run-1", c.config.Rent.Minimum(5000)+1, 5000))
	add("account without rent", `{"InsufficientFundsForRent":{"account_index":1}}`, by(payer), seeded("run-2", c.config.Rent.Minimum(5000)-1, 5000))
	add("account too large", custom("0", "3"), by(payer), seeded("run-2", sol, 10<<20+1))
	wrong := seeded("run-2", sol, 10)
	wrong.Accounts[1].Key = public(other)
	add("account of another seed", custom("0", "5"), by(payer), wrong)
	steps = append(steps, squatting(c, program)...)
	add("account", "", by(payer, data), transaction.CreateAccount(public(payer), public(data), sol, 64, public(program)))
	add("account of system", "", by(payer, readOnly), transaction.CreateAccount(public(payer), public(readOnly), sol, 64, transaction.SystemProgram))
	add("transfer from data", failed("InvalidArgument"), by(payer, readOnly), transaction.Transfer(public(readOnly), public(poor), 1))
	add("assign", "", by(payer, readOnly), transaction.Assign(public(readOnly), public(other)))
	add("assign what is others'", failed("ModifiedProgramId"), by(payer, readOnly), transaction.Assign(public(readOnly), public(program)))
	add("allocate what is in use", custom("0", "0"), by(payer, readOnly), transaction.Allocate(public(readOnly), 10))
	add("two instructions, one bad", custom("1", "1"), by(payer), transaction.Transfer(public(payer), public(poor), 5), transaction.Transfer(public(payer), public(poor), 5000*sol))

	steps = append(steps, deployment(c, program, buffer, "")...)
	steps = append(steps, step{slots: 2})
	mine, yours := writable(public(data)), writable(public(readOnly))
	run, err := transaction.CreateWithSeed(public(payer), "run-1", public(program))
	if err != nil {
		c.Fatal(err)
	}
	add("call", "", by(payer), do(0, 0))
	add("call with limit", "", by(payer), transaction.ComputeUnitLimit(20_000), do(0, 0))
	add("custom error", custom("0", "6003"), by(payer), do(0, 6003))
	add("builtin error", failed("InvalidArgument"), by(payer), do(0, 2<<32))
	add("no error", failed("InvalidError"), by(payer), do(0, 99<<32))
	add("endless", failed("ProgramFailedToComplete"), by(payer), do(1, 0))
	add("deep", failed("ProgramFailedToComplete"), by(payer), do(2, 64))
	add("not so deep", "", by(payer), do(2, 61))
	add("own data", "", by(payer), do(3, 7, mine))
	add("own data, read-only", failed("ReadonlyDataModified"), by(payer), do(3, 7, readable(public(data))))
	add("data of others", failed("ExternalAccountDataModified"), by(payer), do(3, 7, yours))
	add("lamports move", "", by(payer), do(4, 1000, mine, yours))
	add("lamports of others", failed("ExternalAccountLamportSpend"), by(payer), do(4, 1000, yours, mine))
	add("lamports to read-only", failed("ReadonlyLamportChange"), by(payer), do(4, 1000, mine, readable(public(readOnly))))
	add("lamports of nowhere", failed("UnbalancedInstruction"), by(payer), do(5, 10, mine))
	add("same account twice", "", by(payer), do(4, 10, mine, mine))
	add("grows", "", by(payer), do(14, 100, mine))
	add("grows too much", failed("InvalidRealloc"), by(payer), do(6, 10_241, mine))
	add("others' grows", failed("ExternalAccountDataModified"), by(payer), do(6, 1, yours))
	add("others', read-only, grows", failed("ReadonlyDataModified"), by(payer), do(6, 1, readable(public(readOnly))))
	add("shrinks", "", by(payer), do(9, 90, mine))
	add("below rent", `{"InsufficientFundsForRent":{"account_index":1}}`, by(payer), do(4, sol-1000-100_000, mine, yours))
	add("given away with data", failed("ModifiedProgramId"), by(payer), do(7, 1, mine))
	add("system calls", "", by(payer), do(20, 5), do(21, 9), do(22, 0), do(23, 0), do(24, 2), do(25, 8), do(29, 2))
	add("clock and rent", "", by(payer), do(26, 0), do(27, 0))
	sysvar := func(key transaction.PublicKey, offset uint64) transaction.Instruction {
		in := do(28, offset)
		in.Data = append(in.Data, key[:]...)
		return in
	}
	add("sysvars", "", by(payer), sysvar(transaction.ClockSysvar, 0), sysvar(transaction.SlotHashesSysvar, 8), sysvar(transaction.SlotHashesSysvar, 48), sysvar(transaction.ClockSysvar, 30), sysvar(public(poor), 0))
	add("log of no slices", "", by(payer), do(24, 0))
	add("log of too many slices", failed("ProgramFailedToComplete"), by(payer), do(24, 1<<32))
	add("log of more than there can be", failed("ProgramFailedToComplete"), by(payer), do(24, 1<<60))
	add("hash of too many slices", failed("ProgramFailedToComplete"), by(payer), do(29, 20_001))
	add("hash of slices that are not there", failed("ProgramFailedToComplete"), by(payer), do(29, 20_000))
	add("return of much", failed("ProgramFailedToComplete"), by(payer), do(25, 1025))
	add("abort", failed("ProgramFailedToComplete"), by(payer), do(30, 0))
	add("not aligned", failed("ProgramFailedToComplete"), by(payer), do(31, 1))
	add("copy onto itself", failed("ProgramFailedToComplete"), by(payer), do(32, 4))
	add("log of nowhere", failed("ProgramFailedToComplete"), by(payer), do(33, 8))
	add("many logs", "", by(payer), do(35, 400), do(20, 5))
	add("call beyond the limit", failed("ComputationalBudgetExceeded"), by(payer), do(35, 3000))
	add("run's account emptied", "", by(payer), do(13, c.config.Rent.Minimum(5000), writable(run), mine))
	add("account with seed anew", "", by(payer), seeded("run-1", c.config.Rent.Minimum(10), 10))
	add("final", "", by(payer), must(transaction.Finalize(public(program), public(payer))))
	steps = append(steps, deployment(c, program, keyOf("second buffer"), "upgrade")...)
	return steps
}

// deployment creates a buffer, writes the program into it, and deploys it or upgrades an existing
// program.
func deployment(c *chain, program, buffer identity.Key, how string) []step {
	payer, image := c.payer, probe(c.TB)
	var steps []step
	add := func(name, want string, keys []identity.Key, instructions ...transaction.Instruction) {
		steps = append(steps, step{name: strings.TrimSpace(how + " " + name), keys: keys, instructions: instructions, want: want})
	}
	size := uint64(transaction.BufferHeader + len(image))
	add("buffer", "", []identity.Key{payer, buffer},
		transaction.CreateAccount(public(payer), public(buffer), c.config.Rent.Minimum(int(size)), size, transaction.LoaderProgram),
		transaction.InitializeBuffer(public(buffer), public(payer)))
	add("buffer again", `{"InstructionError":[0,"AccountAlreadyInitialized"]}`, []identity.Key{payer}, transaction.InitializeBuffer(public(buffer), public(payer)))
	for at := 0; at < len(image); at += transaction.MaxLoaderWrite {
		add("write", "", []identity.Key{payer}, transaction.LoaderWrite(public(buffer), public(payer), uint32(at), image[at:min(at+transaction.MaxLoaderWrite, len(image))]))
	}
	add("write behind the end", `{"InstructionError":[0,"AccountDataTooSmall"]}`, []identity.Key{payer}, transaction.LoaderWrite(public(buffer), public(payer), uint32(len(image)), []byte{1}))
	add("write of another", `{"InstructionError":[0,"IncorrectAuthority"]}`, []identity.Key{payer, buffer}, transaction.LoaderWrite(public(buffer), public(buffer), 0, []byte{1}))
	if how == "upgrade" {
		in, err := transaction.Upgrade(public(program), public(buffer), public(payer), public(payer))
		if err != nil {
			c.Fatal(err)
		}
		add("of what is final", `{"InstructionError":[0,"Immutable"]}`, []identity.Key{payer}, in)
		add("buffer closed", "", []identity.Key{payer}, transaction.CloseBuffer(public(buffer), public(payer), public(payer)))
		return steps
	}
	create := transaction.CreateAccount(public(payer), public(program), c.config.Rent.Minimum(transaction.ProgramSize), transaction.ProgramSize, transaction.LoaderProgram)
	deploy := func(room uint64) transaction.Instruction {
		in, err := transaction.Deploy(public(payer), public(program), public(buffer), public(payer), room)
		if err != nil {
			c.Fatal(err)
		}
		return in
	}
	add("too little room", `{"InstructionError":[1,"AccountDataTooSmall"]}`, []identity.Key{payer, program}, create, deploy(uint64(len(image)-1)))
	add("deploy", "", []identity.Key{payer, program}, create, deploy(uint64(2*len(image))))
	add("deploy again", `{"InstructionError":[0,"AccountAlreadyInitialized"]}`, []identity.Key{payer}, deploy(uint64(2*len(image))))
	return steps
}
