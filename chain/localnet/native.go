package localnet

import (
	"fmt"

	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Costs of the native programs, in compute units.
const (
	systemUnits = 150
	budgetCost  = 150
	loaderUnits = 2370
)

// native runs a native program.
func (e *execution) native(program transaction.PublicKey, accounts []*runtime.Account, data []byte) error {
	e.log("Program " + program.String() + " invoke [1]")
	err := e.nativeBody(program, accounts, data)
	if err != nil {
		e.log("Program " + program.String() + " failed: " + err.Error())
		return err
	}
	e.log("Program " + program.String() + " success")
	return nil
}

func (e *execution) nativeBody(program transaction.PublicKey, accounts []*runtime.Account, data []byte) error {
	cost := map[transaction.PublicKey]uint64{
		transaction.SystemProgram: systemUnits, transaction.ComputeBudgetProgram: budgetCost, transaction.LoaderProgram: loaderUnits,
	}[program]
	if err := e.charge(cost); err != nil || program == transaction.ComputeBudgetProgram {
		return err
	}
	run := (*nativeCall).system
	if program == transaction.LoaderProgram {
		run = (*nativeCall).loader
	}
	_, err := attempt(func() any {
		run(&nativeCall{execution: e, accounts: accounts, data: reader{rest: data}})
		return nil
	})
	return err
}

// charge takes compute units.
func (e *execution) charge(units uint64) error {
	if units > e.budget.units-e.units {
		e.units = e.budget.units
		return runtime.ErrBudget
	}
	e.units += units
	return nil
}

// nativeCall is an instruction for a native program.
type nativeCall struct {
	*execution
	accounts []*runtime.Account
	data     reader
}

func (n *nativeCall) logf(format string, arguments ...any) { n.log(fmt.Sprintf(format, arguments...)) }

// refusef writes a line to the transaction's log and refuses the instruction.
func (n *nativeCall) refusef(err error, format string, arguments ...any) {
	n.logf(format, arguments...)
	refuse(err)
}

// must refuses the instruction if there is an error.
func (n *nativeCall) must(err error) {
	if err != nil {
		refuse(err)
	}
}

// has refuses an instruction that names fewer than count accounts.
func (n *nativeCall) has(count int) {
	if len(n.accounts) < count {
		refuse(runtime.ErrMissingAccount)
	}
}

// reader parses the data of an instruction. ok becomes false if data is missing.
type reader struct {
	rest    []byte
	missing bool
}

func (r *reader) take(n uint64) []byte {
	if r.missing || n > uint64(len(r.rest)) {
		r.missing = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (r *reader) key() (key transaction.PublicKey) {
	copy(key[:], r.take(32))
	return key
}

func (r *reader) text() string { return string(r.take(r.u64())) }
