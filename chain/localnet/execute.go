package localnet

import (
	"github.com/psyche-go/psyche/chain/sbpf"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Limits of a transaction.
const (
	maxLocks = 64
	maxLogs  = 10_000 // bytes
)

// execution is the execution of a transaction on copies of its accounts.
type execution struct {
	message   *transaction.Message
	lookup    func(transaction.PublicKey) *Account
	sysvars   *runtime.Sysvars
	budget    budget
	fee       uint64
	accounts  []*runtime.Account // of the message's keys
	programs  map[transaction.PublicKey]*sbpf.Program
	units     uint64
	logs      []string
	logged    int
	truncated bool
	returned  *ReturnData
}

// outcome is the result of a transaction.
type outcome struct {
	Record
	landed  bool // it is in a block, and the fee is paid
	changes map[transaction.PublicKey]*Account
}

// execute runs a transaction on the accounts that lookup returns.
func execute(m *transaction.Message, b budget, fee uint64, sysvars *runtime.Sysvars, lookup func(transaction.PublicKey) *Account) outcome {
	e := &execution{message: m, lookup: lookup, sysvars: sysvars, budget: b, fee: fee, programs: map[transaction.PublicKey]*sbpf.Program{}}
	o := outcome{Record: Record{Message: *m, Fee: fee, Price: b.price}}
	before := e.load()
	for _, a := range before {
		o.Pre = append(o.Pre, a.Lamports)
	}
	o.Post = o.Pre
	if o.Err = e.pay(); o.Err != nil {
		return o
	}
	o.landed = true
	paid := *e.accounts[0]
	if o.Err = e.checkLoaded(); o.Err == nil {
		o.Err = e.run()
	}
	if o.Err == nil {
		o.Err = e.checkRent(before)
	}
	if o.Err != nil { // only the fee remains
		for i := range e.accounts {
			*e.accounts[i] = before[i]
		}
		*e.accounts[0] = paid
	}
	o.changes = e.changes(before)
	o.Post = nil
	for _, a := range e.accounts {
		o.Post = append(o.Post, a.Lamports)
	}
	o.Units, o.Logs, o.Return = e.units, e.logs, e.returned
	return o
}

// load copies the accounts, and returns their initial contents.
func (e *execution) load() []runtime.Account {
	called := map[transaction.PublicKey]bool{}
	loader := false
	for _, in := range e.message.Instructions {
		called[e.message.Keys[in.Program]] = true
	}
	for _, key := range e.message.Keys {
		loader = loader || key == transaction.LoaderProgram
	}
	var before []runtime.Account
	for i, key := range e.message.Keys {
		_, native := natives[key]
		writable := e.message.IsWritable(i) && !native && !isSysvar(key) && (!called[key] || loader)
		a := &runtime.Account{Key: key, Signer: e.message.IsSigner(i), Writable: writable, RentEpoch: rentEpoch}
		if found := e.lookup(key); found != nil {
			a.Owner, a.Lamports, a.Data, a.Executable = found.Owner, found.Lamports, found.Data, found.Executable
		}
		e.accounts = append(e.accounts, a)
		before = append(before, *a)
	}
	return before
}

// pay takes the fee from the first account.
func (e *execution) pay() *TransactionError {
	payer := e.accounts[0]
	switch {
	case payer.Lamports == 0:
		return errAccountNotFound
	case payer.Owner != transaction.SystemProgram || len(payer.Data) > 0:
		return errPayer
	case payer.Lamports < e.fee:
		return errFunds
	}
	left := payer.Lamports - e.fee
	if left != 0 && left < e.sysvars.Rent.Minimum(0) {
		return &TransactionError{Name: errRent}
	}
	payer.Lamports = left
	return nil
}

// checkLoaded returns an error if a program is not executable, or if the accounts exceed the size
// limit.
func (e *execution) checkLoaded() *TransactionError {
	var total uint64
	for _, a := range e.accounts {
		if a.Lamports == 0 && len(a.Data) == 0 {
			continue
		}
		total += uint64(len(a.Data)) + loadedPerKey
		if data := e.programData(a); data != nil {
			total += uint64(len(data.Data)) + loadedPerKey
		}
	}
	if total > e.budget.maxLoaded {
		return errLoadedSize
	}
	for _, in := range e.message.Instructions {
		program := e.accounts[in.Program]
		switch {
		case program.Lamports == 0:
			return errProgramNotFound
		case !program.Executable:
			return errProgram
		case program.Owner != nativeLoader && program.Owner != transaction.LoaderProgram:
			return errProgram
		}
	}
	return nil
}

// run executes the instructions in order.
func (e *execution) run() *TransactionError {
	for i := range e.message.Instructions {
		if err := e.instruction(i); err != nil {
			return &TransactionError{errInstruction, i, err}
		}
	}
	return nil
}

func (e *execution) instruction(n int) error {
	in := &e.message.Instructions[n]
	program := e.message.Keys[in.Program]
	accounts := make([]*runtime.Account, len(in.Accounts))
	for i, at := range in.Accounts {
		accounts[i] = e.accounts[at]
	}
	e.returned = nil
	if program == transaction.Ed25519Program { // has no logs and costs no units
		return e.signatures(in.Data)
	}
	e.showInstructions(n)
	if _, native := natives[program]; native {
		return e.native(program, accounts, in.Data)
	}
	loaded, err := e.loaded(e.accounts[in.Program])
	if err != nil {
		e.log("Program " + program.String() + " invoke [1]")
		e.log("Program is not deployed")
		e.log("Program " + program.String() + " failed: " + err.Error())
		return err
	}
	result, err := runtime.Invoke(loaded, e.sysvars, program, accounts, in.Data, e.budget.units-e.units)
	e.units += result.Units
	for _, line := range result.Logs {
		e.log(line)
	}
	if len(result.Return) > 0 {
		e.returned = &ReturnData{program, result.Return}
	}
	return err
}

// loaded returns the executable of a program's account. A program can be called only after the slot
// of its deployment.
func (e *execution) loaded(program *runtime.Account) (*sbpf.Program, error) {
	data := e.programData(program)
	if data == nil || data.program == nil || le.Uint64(data.Data[4:]) >= e.sysvars.Clock.Slot {
		return nil, runtime.ErrUnsupportedProgram
	}
	return data.program, nil
}

// programData returns the account with a program's image before the transaction, or nil.
func (e *execution) programData(program *runtime.Account) *Account {
	if program.Owner != transaction.LoaderProgram || !program.Executable || len(program.Data) < transaction.ProgramSize {
		return nil
	}
	return e.lookup(transaction.PublicKey(program.Data[4:transaction.ProgramSize]))
}

// log adds a line to the log. If the log is full, it drops the line and adds one notice.
func (e *execution) log(line string) {
	if e.logged+len(line) < maxLogs {
		e.logged += len(line)
		e.logs = append(e.logs, line)
	} else if !e.truncated {
		e.truncated = true
		e.logs = append(e.logs, "Log truncated")
	}
}

// checkRent returns an error if the transaction leaves a nonempty account below its minimum
// balance.
func (e *execution) checkRent(before []runtime.Account) *TransactionError {
	for i, a := range e.accounts {
		exempt := a.Lamports == 0 || a.Lamports >= e.sysvars.Rent.Minimum(len(a.Data))
		same := a.Lamports == before[i].Lamports && len(a.Data) == len(before[i].Data)
		if a.Writable && !exempt && !same {
			return &TransactionError{Name: errRent, Index: i}
		}
	}
	return nil
}

// changes returns the modified accounts.
func (e *execution) changes(before []runtime.Account) map[transaction.PublicKey]*Account {
	changed := map[transaction.PublicKey]*Account{}
	for i, a := range e.accounts {
		b := &before[i]
		same := a.Lamports == b.Lamports && a.Owner == b.Owner && a.Executable == b.Executable && sameBytes(a.Data, b.Data)
		switch {
		case same || isSysvar(a.Key):
		case a.Lamports == 0:
			changed[a.Key] = nil
		default:
			next := &Account{Owner: a.Owner, Lamports: a.Lamports, Data: a.Data, Executable: a.Executable}
			if old := e.lookup(a.Key); old != nil && sameBytes(a.Data, b.Data) {
				next.program = old.program
			}
			if p, found := e.programs[a.Key]; found {
				next.program = p
			}
			changed[a.Key] = next
		}
	}
	return changed
}

// sameBytes reports whether two slices share their memory. That is enough because data is replaced,
// never modified.
func sameBytes(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
