package programtest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// ofThisRun returns a proof whose announcements contain the hash of the account's run, which only
// the host checks.
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

// proven returns the instructions sysvar of a transaction in which the chain has verified the
// signatures of an action's proof.
func (d *deployed) proven(o operation, data []byte) *runtime.Account {
	sysvar := &runtime.Account{Key: runtime.InstructionsAddress}
	own := runtime.Instruction{Program: programID, Data: data}
	var check runtime.Instruction
	if _, err := wire.DecodeAction(data[9:]); err == nil {
		verified := transaction.Placed(transaction.Program(programID).ActProven(d.run.Key, transaction.PublicKey(o.from), le.Uint64(data[1:]), data[9:]))[0]
		check = runtime.Instruction{Program: verified.Program, Data: slices.Clone(verified.Data)}
	}
	sysvar.Data = runtime.InstructionsBytes([]runtime.Instruction{check, own}, 1)
	if recording != nil {
		recording.check = check
	}
	return sysvar
}

// provenByTheChain ejects a member by announcements that it really signed, which litesvm verifies.
func provenByTheChain(t *testing.T) {
	t.Helper()
	d := newDeployed(loadProgram(t))
	c := begun(newPair(d), 3, false)
	c.must(clientID(1), readyOf(&c.r.s, clientID(1), sha256.Sum256(secret[:])))
	c.tick(50*second, coordinator.RoundTrain)
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	equivocator := coordinator.ClientID(private.Public().(ed25519.PublicKey))
	s := c.r.s.Clone()
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range clients {
			if clients[i].ID == clientID(2) {
				clients[i].ID = equivocator
			}
		}
	}
	for i, id := range s.CurrentRound().Members {
		if id == clientID(2) {
			s.CurrentRound().Members[i] = equivocator
		}
	}
	if err := errors.Join(c.err, c.r.load(s)); err != nil {
		t.Fatal(err)
	}
	proof := equivocationOf(equivocator, s.Progress.Step, false, true)
	run := wire.ChainRun(programID, d.run.Key)
	for i := range proof.Results {
		m := []byte(proof.Results[i].Message)
		copy(m[24:], run[:])
		proof.Results[i].Message, proof.Results[i].Signature = string(m), [64]byte(ed25519.Sign(private, m))
	}
	c.must(clientID(0), proof)
	if c.err != nil {
		t.Fatal(c.err)
	}
	if member, ok := c.r.s.Member(equivocator); !ok || member.State != coordinator.Ejected {
		t.Errorf("the member with two results is %v", member)
	}
}

func TestProvenByTheChain(t *testing.T) { provenByTheChain(t) }

// TestProofs checks the program's comparison with the signatures that the chain has verified. It
// must refuse any difference in the key, the signatures or the messages of the action.
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
	// shown is the content of the sysvar of a transaction's instructions: an unrelated instruction,
	// and then the two instructions that belong together.
	type shown struct {
		all     []runtime.Instruction
		current int
		key     [32]byte
	}
	good := func() shown {
		pair := transaction.Placed(append([]transaction.Instruction{{}}, transaction.Program(programID).ActProven(run, member, 9, data[9:])...))
		return shown{[]runtime.Instruction{
			{Program: programID, Accounts: []*runtime.Account{s.account("run")}, Data: []byte{transaction.RunTick}},
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
