package programtest

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/solana/program"
	"github.com/psyche-go/psyche/solana/sbpf/runtime"
	"github.com/psyche-go/psyche/solana/transaction"
	"github.com/psyche-go/psyche/wire"
)

// ofThisRun returns a proof with announcements for the run of the account, whose hash only the host
// looks at.
func (d *deployed) ofThisRun(action []byte) []byte {
	decoded, err := wire.DecodeAction(action)
	proof, ok := decoded.(coordinator.Equivocation)
	if err != nil || !ok {
		return action
	}
	run := wire.ChainRun(programID, d.run.Key)
	for i := range proof.Results {
		m := []byte(proof.Results[i].Message)
		copy(m[24:], run[:])
		proof.Results[i].Message = string(m)
	}
	return wire.AppendAction(nil, proof)
}

// proven returns the sysvar of a transaction in which the chain has verified the signatures of an
// action's proof.
func (d *deployed) proven(o operation, data []byte) *runtime.Account {
	sysvar := &runtime.Account{Key: runtime.InstructionsAddress}
	own := runtime.Instruction{Program: programID, Data: data}
	var check runtime.Instruction
	if _, err := wire.DecodeAction(data[9:]); err == nil {
		verified := transaction.Placed(transaction.Program(programID).ActProven(d.run.Key, transaction.PublicKey(o.from), le.Uint64(data[1:]), data[9:]))[0]
		check = runtime.Instruction{Program: verified.Program, Data: slices.Clone(verified.Data)}
	}
	sysvar.Data = runtime.InstructionsBytes([]runtime.Instruction{check, own}, 1)
	return sysvar
}

// TestProofs has the program look at what the chain says it has verified: whatever is another thing
// than the key, the signatures and the messages of the action is refused.
func TestProofs(t *testing.T) {
	s := newScene(t, loadProgram(t))
	run, member := s.account("run").Key, s.account("member").Key
	proof := equivocationOf(clientID(9), 1, false, true)
	hash := wire.ChainRun(programID, run)
	for i := range proof.Results {
		m := []byte(proof.Results[i].Message)
		copy(m[24:], hash[:])
		proof.Results[i].Message = string(m)
	}
	data := act(9, proof)
	// transaction is what the sysvar shows: an instruction before the two that belong together.
	type shown struct {
		all     []runtime.Instruction
		current int
		key     [32]byte
	}
	good := func() shown {
		pair := transaction.Placed(append([]transaction.Instruction{{}}, transaction.Program(programID).ActProven(run, member, 9, data[9:])...))
		return shown{[]runtime.Instruction{
			{Program: programID, Accounts: []*runtime.Account{s.account("run")}, Data: []byte{program.Tick}},
			{Program: pair[1].Program, Data: pair[1].Data},
			{Program: programID, Accounts: []*runtime.Account{s.account("run"), s.account("member")}, Data: slices.Clone(data)},
		}, 2, runtime.InstructionsAddress}
	}
	try := func(name string, want error, data []byte, change func(*shown)) {
		t.Helper()
		x := good()
		change(&x)
		s.accounts["sysvar"] = &runtime.Account{Key: x.key, Data: runtime.InstructionsBytes(x.all, x.current)}
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.refused(want, data, "run", "member", "sysvar")
		})
		s.t = t
	}
	unchanged := func(*shown) {}
	try("good, of a round that is not stored", coordinator.ErrWrongStep, data, unchanged)
	s.refused(program.ErrNotEnoughAccountKeys, data, "run", "member")
	try("another sysvar", program.ErrInvalidArgument, data, func(x *shown) { x.key[5] ^= 1 })
	try("the first instruction", program.ErrInvalidArgument, data, func(x *shown) { x.all, x.current = x.all[2:], 0 })
	try("called by another program", program.ErrInvalidArgument, data, func(x *shown) { x.all[2].Program[0] ^= 1 })
	try("called with other data", program.ErrInvalidArgument, data, func(x *shown) { x.all[2].Data[50] ^= 1 })
	try("called with more data", program.ErrInvalidArgument, data, func(x *shown) { x.all[2].Data = append(x.all[2].Data, 0) })
	try("verified by nobody", program.ErrInvalidArgument, data, func(x *shown) { x.all[1].Program[0] ^= 1 })
	try("verified later", program.ErrInvalidArgument, data, func(x *shown) { x.all[0], x.all[1] = x.all[1], x.all[0] })
	try("one signature", program.ErrInvalidArgument, data, func(x *shown) { x.all[1].Data[0] = 1 })
	try("fields cut", program.ErrInvalidArgument, data, func(x *shown) { x.all[1].Data = x.all[1].Data[:29] })
	for at := 2; at < 30; at++ {
		try("another field", program.ErrInvalidArgument, data, func(x *shown) { x.all[1].Data[at] ^= 1 })
	}
	foreign := equivocationOf(clientID(9), 1, false, true)
	other := act(9, foreign)
	try("another run", program.ErrInvalidArgument, other, func(x *shown) { x.all[2].Data = other })
	cut := data[:len(data)-1]
	try("cut", coordinator.ErrMalformed, cut, func(x *shown) { x.all[2].Data = cut })
}
