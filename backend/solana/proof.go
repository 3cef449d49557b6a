package solana

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/solana/event"
	"github.com/psyche-go/psyche/solana/layout"
	"github.com/psyche-go/psyche/solana/replay"
	"github.com/psyche-go/psyche/solana/rpc"
	"github.com/psyche-go/psyche/solana/transaction"
)

// ErrReplay says that transactions do not lead to the state that they should.
var ErrReplay = errors.New("the transactions do not lead to this state")

var le = binary.LittleEndian

// proof is a run's state that follows transactions: every action is checked to be signed by who
// acts, every event to be what the rules make of it, and the chain of hashes to go on.
type proof struct {
	program transaction.PublicKey
	address transaction.PublicKey
	run     *replay.Run
	now     uint64 // the chain's time at the newest event
}

// newProof begins with a state that is known.
func newProof(program, address transaction.PublicKey, from *layout.Account) *proof {
	return &proof{program: program, address: address, run: replay.Resume(program, address, from)}
}

// follow applies what a transaction did to the run.
func (p *proof) follow(landed *rpc.Landed) error {
	if landed.Err != nil {
		return nil
	}
	if err := landed.Transaction.Verify(); err != nil {
		return fmt.Errorf("%w: %w", ErrReplay, err)
	}
	events, err := p.events(landed.Logs)
	if err != nil {
		return err
	}
	m := &landed.Transaction.Message
	for n := range m.Instructions {
		in := m.Instruction(n)
		if in.Program != p.program || len(in.Accounts) == 0 || in.Accounts[0].Key != p.address || len(in.Data) == 0 {
			continue
		}
		if events, err = p.instruction(in, events); err != nil {
			return fmt.Errorf("%w: transaction %s, instruction %d: %w", ErrReplay, landed.Transaction.Name(), n, err)
		}
	}
	if len(events) > 0 {
		return fmt.Errorf("%w: transaction %s logs %d events that none of its instructions explains", ErrReplay, landed.Transaction.Name(), len(events))
	}
	return nil
}

// events reads what a transaction logged of the run.
func (p *proof) events(logs []string) ([]event.Event, error) {
	entries, complete := rpc.ProgramData(logs, p.program)
	if !complete {
		return nil, fmt.Errorf("%w: a log was cut off", ErrReplay)
	}
	var events []event.Event
	for _, entry := range entries {
		e, err := event.Decode(entry)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrReplay, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// instruction applies one, and returns the events that are left. An action always has one, a
// tick has when something changed.
func (p *proof) instruction(in transaction.Instruction, events []event.Event) ([]event.Event, error) {
	var logged [][]byte
	var signer transaction.PublicKey
	kind := in.Data[0]
	switch {
	case kind == transaction.RunWrite:
	case kind == transaction.RunAct && len(in.Accounts) > 1 && in.Accounts[1].Signer:
		signer = in.Accounts[1].Key
	case kind == transaction.RunTick:
	default:
		return nil, fmt.Errorf("instruction %d cannot be replayed", kind)
	}
	if kind != transaction.RunWrite && len(events) > 0 && events[0].Instruction == uint64(kind) {
		e := events[0]
		events = events[1:]
		switch {
		case e.Now < p.now:
			return nil, fmt.Errorf("event %d is of a time before the one before it", e.Sequence)
		case e.Draw != [32]byte{} && !needsDraw(&p.run.State):
			return nil, fmt.Errorf("event %d has a draw and needs none", e.Sequence)
		}
		p.now = e.Now
		logged = append(logged, e.AppendTo(nil))
	}
	return events, p.run.Do(signer, in.Data, logged)
}

// shows reports whether the state that was reached is that of an account.
func (p *proof) shows(s *sighting) bool {
	return s.account != nil && s.sequence == p.run.Sequence && s.head == p.run.Head &&
		slices.Equal(s.account.State.AppendTo(nil), p.run.State.AppendTo(nil))
}
