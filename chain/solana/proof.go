package solana

import (
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/replay"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// errReplay means that transactions do not lead to the expected state.
var errReplay = errors.New("the transactions do not lead to this state")

// proof is a run's state derived from transactions. It verifies that the acting key signed each
// action, that each event follows from the rules, and that the hash chain is complete. It cannot
// verify the grant of an Admit, so an Admit ends the proof.
type proof struct {
	program transaction.PublicKey
	address transaction.PublicKey
	run     *replay.Run
	now     uint64 // the chain's time at the newest event
}

// newProof starts with a known state.
func newProof(program, address transaction.PublicKey, from *layout.Account) *proof {
	return &proof{program: program, address: address, run: replay.Resume(program, address, from)}
}

// follow applies a transaction's changes to the run.
func (p *proof) follow(landed *rpc.Landed) error {
	if landed.Err != nil {
		return nil
	}
	if err := landed.Transaction.Verify(); err != nil {
		return fmt.Errorf("%w: %w", errReplay, err)
	}
	instructions, err := p.instructions(landed)
	if err != nil {
		return err
	}
	for _, d := range instructions {
		if err := p.do(d); err != nil {
			return fmt.Errorf("%w: transaction %s, instruction %d: %w", errReplay, landed.Transaction.Name(), d.number, err)
		}
	}
	return nil
}

// loggedInstruction is an instruction of the run with its log.
type loggedInstruction struct {
	transaction.Instruction
	number int // in its message
	events []event.Event
}

// instructions returns the run's instructions in a transaction. The transaction may also change
// other runs, directly or through programs that call this one. A change of this run through such a
// call is missing from the hash chain, so that nothing after it is proved.
func (p *proof) instructions(landed *rpc.Landed) ([]loggedInstruction, error) {
	calls, complete := rpc.ProgramCalls(landed.Logs, p.program)
	if !complete {
		return nil, fmt.Errorf("%w: a log was truncated", errReplay)
	}
	var instructions []loggedInstruction
	m := &landed.Transaction.Message
	for n := range m.Instructions {
		in := m.Instruction(n)
		if in.Program != p.program {
			continue
		}
		if len(calls) == 0 {
			return nil, fmt.Errorf("%w: transaction %s has no log of instruction %d", errReplay, landed.Transaction.Name(), n)
		}
		logged := calls[0]
		calls = calls[1:]
		if len(in.Accounts) == 0 || in.Accounts[0].Key != p.address || len(in.Data) == 0 {
			continue
		}
		d := loggedInstruction{Instruction: in, number: n}
		for _, entry := range logged {
			e, err := event.Decode(entry)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errReplay, err)
			}
			d.events = append(d.events, e)
		}
		instructions = append(instructions, d)
	}
	return instructions, nil
}

// do applies an instruction. An action always has an event, a tick only if something changed.
func (p *proof) do(in loggedInstruction) error {
	var logged [][]byte
	var signer transaction.PublicKey
	kind := in.Data[0]
	switch {
	case kind == transaction.RunWrite:
	case kind == transaction.RunAct && len(in.Accounts) > 1 && in.Accounts[1].Signer:
		signer = in.Accounts[1].Key
	case kind == transaction.RunTick:
	default:
		return fmt.Errorf("instruction %d cannot be replayed", kind)
	}
	if kind == transaction.RunAct && len(in.Data) > 9 {
		if action, err := wire.DecodeAction(in.Data[9:]); err == nil {
			if _, admits := action.(coordinator.Admit); admits {
				return errors.New("an admission by a grant cannot be proved")
			}
		}
	}
	for _, e := range in.events {
		switch {
		case e.Now < p.now:
			return fmt.Errorf("event %d is earlier than the event before it", e.Sequence)
		case e.Draw != [32]byte{} && !needsDraw(&p.run.State):
			return fmt.Errorf("event %d has a draw, but its round needs none", e.Sequence)
		}
		p.now = e.Now
		logged = append(logged, e.AppendTo(nil))
	}
	return p.run.Do(signer, in.Data, logged)
}

// shows reports whether the current state equals an account's state.
func (p *proof) shows(s *sighting) bool {
	return s.account != nil && s.sequence == p.run.Sequence && s.head == p.run.Head &&
		slices.Equal(s.account.State.AppendTo(nil), p.run.State.AppendTo(nil))
}
