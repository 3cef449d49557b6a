package runtime

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math/bits"

	"github.com/mr-tron/base58"

	"github.com/psyche-go/psyche/chain/sbpf"
)

// Account is an account with an instruction's access mode.
type Account struct {
	Key, Owner                   [32]byte
	Lamports                     uint64
	Data                         []byte
	Signer, Writable, Executable bool
	RentEpoch                    uint64
}

// Result is the outcome of an instruction, including a failed one.
type Result struct {
	Units  uint64   // compute units
	Logs   []string // in the chain's format
	Data   [][]byte // logged with sol_log_data, slice by slice
	Return []byte   // set with sol_set_return_data
}

// maxReturn limits a program's return data in bytes.
const maxReturn = 1024

// Invoke runs a program on accounts with at most limit compute units. Accounts with the same key
// must be the same pointer. The error is an Error; the accounts are then unchanged. Data slices are
// replaced, never modified.
func Invoke(program *sbpf.Program, sysvars *Sysvars, id [32]byte, accounts []*Account, data []byte, limit uint64) (Result, error) {
	c := &call{sysvars: sysvars, sysvarBytes: map[[32]byte][]byte{}, id: base58.Encode(id[:])}
	c.log("Program %s invoke [1]", c.id)
	if err := checkAccounts(accounts, data); err != nil {
		c.log("Program %s failed: %v", c.id, err)
		return c.Result, err
	}
	in := serialize(id, accounts, data)
	m := sbpf.NewMachine(program, limit)
	c.handle(m)
	result, fault := m.Run(in.bytes)
	if many, ok := errors.AsType[sbpf.PiecesError](fault); ok {
		c.log("Sha256 Hashing %d sequences in one syscall is over the limit %d", uint64(many), sbpf.MaxPieces)
	}
	c.Units = min(m.Units(), limit)
	err, reason := outcome(result, fault)
	c.log("Program %s consumed %d of %d compute units", c.id, c.Units, limit)
	if fault != nil && !errors.Is(fault, sbpf.ErrSystem) {
		c.Units = limit // a program that fails this way pays for all its units
	}
	if len(c.Return) > 0 && fault == nil {
		c.log("Program return: %s %s", c.id, base64.StdEncoding.EncodeToString(c.Return))
	}
	var after []Account
	if err == nil {
		after, err = in.changes(id, accounts)
		reason = err
	}
	if err != nil {
		c.log("Program %s failed: %v", c.id, reason)
		return c.Result, err
	}
	c.log("Program %s success", c.id)
	if !in.balanced(accounts, after) {
		return c.Result, errUnbalanced
	}
	for i := range after {
		*accounts[i] = after[i]
	}
	return c.Result, nil
}

// checkAccounts rejects inputs that a transaction cannot contain.
func checkAccounts(accounts []*Account, data []byte) error {
	if len(accounts) > maxAccounts {
		return Error{Name: "MaxAccountsExceeded"}
	}
	total := len(data)
	first := map[[32]byte]*Account{}
	for _, a := range accounts {
		if f, found := first[a.Key]; found && f != a {
			return Error{Name: "DuplicateAccountOutOfSync"}
		} else if !found {
			total += len(a.Data)
		}
		first[a.Key] = a
	}
	if total > maxLoaded {
		return ErrInvalidArgument
	}
	return nil
}

// outcome returns the error of a run, and the reason in the form of the chain's logs.
func outcome(result uint64, fault error) (err, reason error) {
	switch {
	case fault == nil:
		err = ofResult(result)
		return err, err
	case errors.Is(fault, sbpf.ErrCharge):
		return ErrBudget, ErrBudget
	}
	if e, ok := errors.AsType[Error](fault); ok {
		return e, e
	}
	return errNotCompleted, faultText(fault)
}

// said is the reason of a failure, in the form of the chain's logs.
type said string

func (s said) Error() string { return string(s) }

// faultText returns the text for a fault in the chain's logs.
func faultText(fault error) error {
	if own, ok := errors.AsType[said](fault); ok {
		return own
	}
	if _, ok := errors.AsType[sbpf.PiecesError](fault); ok {
		return said("Hashing too many sequences")
	}
	for _, known := range []struct {
		err  error
		text string
	}{
		{sbpf.ErrUnits, "exceeded CUs meter at BPF instruction"},
		{sbpf.ErrDepth, "exceeded max BPF to BPF call depth"},
		{sbpf.ErrDivision, "divide by zero at BPF instruction"},
		{sbpf.ErrInstruction, "unsupported BPF instruction"},
		{sbpf.ErrSyscall, "unsupported BPF instruction"},
		{sbpf.ErrAlign, "Unaligned pointer"},
		{sbpf.ErrOverlap, "Overlapping copy"},
		{sbpf.ErrAbort, "SBF program panicked"},
	} {
		if errors.Is(fault, known.err) {
			return errors.New(known.text)
		}
	}
	return said("Access violation: " + fault.Error())
}

// balanced reports whether the sum of the accounts' lamports is unchanged. An account that the
// instruction names twice counts once.
func (in *input) balanced(before []*Account, after []Account) bool {
	var was, is, wasHigh, isHigh, carry uint64
	for i := range after {
		if in.places[i].first != i {
			continue
		}
		was, carry = bits.Add64(was, before[i].Lamports, 0)
		wasHigh += carry
		is, carry = bits.Add64(is, after[i].Lamports, 0)
		isHigh += carry
	}
	return was == is && wasHigh == isHigh
}

// call is one run of a program.
type call struct {
	Result
	sysvars     *Sysvars
	sysvarBytes map[[32]byte][]byte
	id          string
}

func (c *call) log(format string, arguments ...any) {
	c.Logs = append(c.Logs, fmt.Sprintf(format, arguments...))
}

// changes checks the program's changes to its accounts, and returns the changed accounts, one for
// each account of the instruction.
func (in *input) changes(id [32]byte, accounts []*Account) ([]Account, error) {
	after := make([]Account, len(accounts))
	for i, a := range accounts {
		if first := in.places[i].first; first != i {
			after[i] = after[first]
			continue
		}
		p := in.places[i]
		now := *a
		now.Lamports = le.Uint64(in.bytes[p.lamports:])
		if now.Lamports != a.Lamports {
			if err := checkLamports(id, a, now.Lamports); err != nil {
				return nil, err
			}
		}
		size := le.Uint64(in.bytes[p.lamports+8:])
		if size > uint64(len(a.Data)+maxIncrease) || size > MaxAccountSize {
			return nil, errInvalidRealloc
		}
		data := in.bytes[p.data : p.data+int(size)]
		if err := checkData(id, a, data); err != nil {
			return nil, err
		}
		if !bytes.Equal(a.Data, data) {
			now.Data = bytes.Clone(data)
		}
		now.Owner = [32]byte(in.bytes[p.owner : p.owner+32])
		if err := checkOwner(id, a, now.Owner, now.Data); err != nil {
			return nil, err
		}
		after[i] = now
	}
	return after, nil
}

// SetLamports sets an account's balance on behalf of a program. It returns an error if the program
// may not do this. A read-only account always fails, even if the balance would not change.
func (a *Account) SetLamports(by [32]byte, lamports uint64) error {
	err := checkLamports(by, a, lamports)
	if err == nil {
		a.Lamports = lamports
	}
	return err
}

// SetData sets an account's data on behalf of a program, if the program may do this. It keeps the
// slice.
func (a *Account) SetData(by [32]byte, data []byte) error {
	err := checkData(by, a, data)
	if err == nil {
		a.Data = data
	}
	return err
}

// SetOwner sets an account's owner on behalf of a program, if the program may do this.
func (a *Account) SetOwner(by, owner [32]byte) error {
	err := checkOwner(by, a, owner, a.Data)
	if err == nil {
		a.Owner = owner
	}
	return err
}

// checkOwner returns an error unless a program may change the owner of an account that now has this
// data.
func checkOwner(id [32]byte, before *Account, owner [32]byte, data []byte) error {
	if owner != before.Owner && (before.Owner != id || !before.Writable || !zeros(data)) {
		return errModifiedOwner
	}
	return nil
}

func checkLamports(id [32]byte, a *Account, lamports uint64) error {
	switch {
	case lamports < a.Lamports && a.Owner != id:
		return errExternalLamports
	case !a.Writable:
		return ErrReadonlyLamports
	}
	return nil
}

func checkData(id [32]byte, a *Account, data []byte) error {
	switch {
	case bytes.Equal(a.Data, data):
		return nil
	case !a.Writable:
		return ErrReadonlyData
	case a.Owner != id:
		return ErrExternalData
	}
	return nil
}

func zeros(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
