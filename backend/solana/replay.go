package solana

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/solana/event"
	"github.com/psyche-go/psyche/solana/layout"
	"github.com/psyche-go/psyche/solana/rpc"
	"github.com/psyche-go/psyche/solana/transaction"
	"github.com/psyche-go/psyche/wire"
)

// ErrReplay says that transactions do not lead to the state that they should.
var ErrReplay = errors.New("the transactions do not lead to this state")

// replay is a run's state that follows transactions: every action is checked to be signed by
// who acts, every event to be what the rules make of it, and the chain of hashes to go on.
type replay struct {
	program transaction.PublicKey
	run     transaction.PublicKey
	state   coordinator.State
	claim   claim
	stage   []byte
	now     uint64
}

// newReplay begins with a state that is known.
func newReplay(program, run transaction.PublicKey, from *layout.Account) *replay {
	return &replay{
		program: program, run: run, state: from.State.Clone(), claim: claim{from.Sequence, from.Head}, stage: slices.Clone(from.Stage),
	}
}

// follow applies what a transaction did to the run.
func (r *replay) follow(landed *rpc.Landed) error {
	if landed.Err != nil {
		return nil
	}
	if err := landed.Transaction.Verify(); err != nil {
		return fmt.Errorf("%w: %w", ErrReplay, err)
	}
	events, err := r.events(landed.Logs)
	if err != nil {
		return err
	}
	m := &landed.Transaction.Message
	for n := range m.Instructions {
		in := m.Instruction(n)
		if in.Program != r.program || len(in.Accounts) == 0 || in.Accounts[0].Key != r.run || len(in.Data) == 0 {
			continue
		}
		if events, err = r.instruction(in, events); err != nil {
			return fmt.Errorf("%w: transaction %s, instruction %d: %w", ErrReplay, landed.Transaction.Name(), n, err)
		}
	}
	if len(events) > 0 {
		return fmt.Errorf("%w: transaction %s logs %d events that none of its instructions explains", ErrReplay, landed.Transaction.Name(), len(events))
	}
	return nil
}

// events reads what a transaction logged of the run that is not in the state already.
func (r *replay) events(logs []string) ([]event.Event, error) {
	entries, complete := rpc.ProgramData(logs, r.program)
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

// instruction applies one, and returns the events that are left.
func (r *replay) instruction(in transaction.Instruction, events []event.Event) ([]event.Event, error) {
	data := in.Data[1:]
	switch in.Data[0] {
	case transaction.RunWrite:
		return events, r.write(data)
	case transaction.RunAct:
		if len(events) == 0 || events[0].Instruction != event.Act {
			return nil, errors.New("an action without an event")
		}
		return events[1:], r.act(in, data, events[0])
	case transaction.RunTick:
		if len(events) == 0 || events[0].Instruction != event.Tick {
			return events, nil // nothing was due, or it only armed
		}
		return events[1:], r.tick(events[0])
	}
	return nil, fmt.Errorf("instruction %d cannot be replayed", in.Data[0])
}

func (r *replay) write(data []byte) error {
	if len(data) <= 4 {
		return errors.New("a piece of no bytes")
	}
	at, part := int(le.Uint32(data)), data[4:]
	if at+len(part) > layout.StageSize {
		return errors.New("a piece behind the end of the staging area")
	}
	if missing := at + len(part) - len(r.stage); missing > 0 {
		r.stage = append(r.stage, make([]byte, missing)...)
	}
	copy(r.stage[at:], part)
	return nil
}

func (r *replay) act(in transaction.Instruction, data []byte, e event.Event) error {
	if len(data) < 9 || len(in.Accounts) < 2 || !in.Accounts[1].Signer {
		return errors.New("no action, or nobody signed it")
	}
	actor, nonce, encoded := in.Accounts[1].Key, le.Uint64(data), data[8:]
	if err := r.next(e, event.Cause{Actor: actor, Nonce: nonce, Action: encoded}); err != nil {
		return err
	}
	if staged, err := r.unstage(encoded); err != nil {
		return err
	} else if staged != nil {
		encoded = staged
	}
	action, err := wire.DecodeAction(encoded)
	if err != nil {
		return err
	}
	return r.state.Apply(coordinator.ClientID(actor), nonce, action)
}

// kindUpdateConfig is the only kind of action that is too long for a transaction.
const kindUpdateConfig = 8

// unstage returns the action whose body was staged, or nil when it was not.
func (r *replay) unstage(encoded []byte) ([]byte, error) {
	const named = 1 + 4 + sha256.Size // kind, length, hash
	if encoded[0] != kindUpdateConfig {
		return nil, nil
	}
	if len(encoded) != named {
		return nil, errors.New("an update without its length and hash")
	}
	length := int(le.Uint32(encoded[1:]))
	if length > len(r.stage) || sha256.Sum256(r.stage[:length]) != [32]byte(encoded[5:]) {
		return nil, errors.New("an update that was not staged")
	}
	body := append([]byte{kindUpdateConfig}, r.stage[:length]...)
	r.stage = nil
	return body, nil
}

func (r *replay) tick(e event.Event) error {
	if err := r.next(e, event.Cause{}); err != nil {
		return err
	}
	if !needsDraw(&r.state) && e.Draw != 0 {
		return errors.New("a draw for a tick that needs none")
	}
	if !r.state.Tick(e.Now, e.Draw) {
		return errors.New("a tick was logged that changes nothing")
	}
	return nil
}

// next checks that an event is the next one of the chain of hashes, and that time does not go
// back.
func (r *replay) next(e event.Event, by event.Cause) error {
	switch {
	case e.Sequence != r.claim.sequence+1:
		return fmt.Errorf("event %d follows %d", e.Sequence, r.claim.sequence)
	case e.Now < r.now:
		return fmt.Errorf("event %d is of a time before the one before it", e.Sequence)
	case e.Next(r.claim.head, by) != e.Head:
		return fmt.Errorf("event %d does not follow from the ones before it", e.Sequence)
	}
	r.claim, r.now = claim{e.Sequence, e.Head}, e.Now
	return nil
}

// shows reports whether the state that was reached is that of an account.
func (r *replay) shows(s *sighting) bool {
	return s.account != nil && s.claim == r.claim && slices.Equal(s.account.State.AppendTo(nil), r.state.AppendTo(nil))
}
