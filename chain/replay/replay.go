// Package replay recomputes a run's state from the program's instructions on the chain, in their
// order, and the events that they logged. It needs nothing from the run's account. An archive of
// instructions and events therefore proves every state that the run ever had.
//
//	r := replay.New(program, address)
//	err := r.Do(signer, data, logged)
package replay

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// ErrDiffers means that instructions and events do not match, because some are missing or modified.
var ErrDiffers = errors.New("instructions and events of the run do not match")

var le = binary.LittleEndian

// Instructions that a replay processes. Other instructions change no state.
const (
	opInit    = 1
	opWrite   = 2
	opGenesis = event.Genesis
	opAct     = event.Act
	opTick    = event.Tick
)

const kindUpdateConfig = 8 // from package wire

// Run is a replayed run in its current state.
type Run struct {
	State    coordinator.State
	Main     [32]byte
	Sequence uint64
	Head     [32]byte

	program, address [32]byte
	stage            []byte
}

// New returns the run at an address before its first instruction.
func New(program, address [32]byte) *Run { return &Run{program: program, address: address} }

// Do applies an instruction that the chain accepted. signer is the key that signed it, or zero, and
// logged is its log. After an error the run is unchanged.
func (r *Run) Do(signer [32]byte, data []byte, logged [][]byte) error {
	if len(data) == 0 {
		return fmt.Errorf("%w: an instruction has no data", ErrDiffers)
	}
	if len(logged) == 0 {
		return r.silent(signer, data)
	}
	e, err := event.Decode(logged[0])
	switch {
	case err != nil:
		return fmt.Errorf("%w: log of instruction %d: %w", ErrDiffers, data[0], err)
	case len(logged) > 1:
		return fmt.Errorf("%w: instruction %d has %d log entries, want 1", ErrDiffers, data[0], len(logged))
	}
	if e.Instruction != uint64(data[0]) || e.Sequence != r.Sequence+1 {
		return fmt.Errorf("%w: instruction %d after change %d logs number %d of instruction %d", ErrDiffers, data[0], r.Sequence, e.Sequence, e.Instruction)
	}
	switch data[0] {
	case opGenesis:
		err = r.genesis(signer, data[1:], &e)
	case opAct:
		err = r.act(signer, data[1:], &e)
	default:
		err = r.tick(&e)
	}
	if err != nil {
		return err
	}
	r.Sequence, r.Head = e.Sequence, e.Head
	return nil
}

// silent applies an instruction that logged nothing.
func (r *Run) silent(signer [32]byte, data []byte) error {
	switch data[0] {
	case opInit:
		r.Main = signer
	case opWrite:
		if len(data) < 5 {
			return fmt.Errorf("%w: an instruction that stages a piece has %d bytes, want at least 5", ErrDiffers, len(data))
		}
		if signer != r.Main {
			return fmt.Errorf("%w: key %x stages data for the run of key %x", ErrDiffers, signer, r.Main)
		}
		at, part := int64(le.Uint32(data[1:])), data[5:]
		end := at + int64(len(part))
		if end > layout.StageSize {
			return fmt.Errorf("%w: a piece ends at byte %d of the staging area, which has %d", ErrDiffers, end, layout.StageSize)
		}
		if grow := end - int64(len(r.stage)); grow > 0 {
			r.stage = append(r.stage, make([]byte, grow)...)
		}
		copy(r.stage[at:], part)
	case opGenesis, opAct:
		return fmt.Errorf("%w: instruction %d has no log", ErrDiffers, data[0])
	}
	return nil
}

// staged returns the staged bytes that an instruction names.
func (r *Run) staged(named []byte) ([]byte, error) {
	if len(named) != 4+sha256.Size || int64(le.Uint32(named)) > int64(len(r.stage)) {
		return nil, fmt.Errorf("%w: the instruction refers to more than the %d staged bytes", ErrDiffers, len(r.stage))
	}
	b := r.stage[:le.Uint32(named)]
	if sha256.Sum256(b) != [32]byte(named[4:]) {
		return nil, fmt.Errorf("%w: the %d staged bytes do not have the hash in the instruction", ErrDiffers, len(b))
	}
	return b, nil
}

func (r *Run) genesis(signer [32]byte, named []byte, e *event.Event) error {
	b, err := r.staged(named)
	if err != nil {
		return err
	}
	first := event.FirstHead(r.program, r.address, r.Main, [32]byte(named[4:]))
	if err := checkHead(first, e, event.Cause{Actor: signer, Data: named}); err != nil {
		return err
	}
	g, err := layout.ReadGenesis(b)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDiffers, err)
	}
	s, err := g.State()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDiffers, err)
	}
	if err := r.checkOwner(signer, &s); err != nil {
		return err
	}
	r.State, r.stage = s, nil
	return nil
}

// checkOwner returns an error unless the main authority started the run, and the run's address
// follows from the program, this authority and the run id. Therefore even a forged archive cannot
// contain a run that another key started at this address.
func (r *Run) checkOwner(signer [32]byte, s *coordinator.State) error {
	address, err := transaction.Program(r.program).RunAddress(r.Main, s.RunID)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrDiffers, err)
	case signer != r.Main || s.Authority.Main != coordinator.ClientID(r.Main):
		return fmt.Errorf("%w: key %x starts the run of key %x with the main authority %x", ErrDiffers, signer, r.Main, s.Authority.Main)
	case s.Host != coordinator.ClientID(r.address) || address != r.address:
		return fmt.Errorf("%w: the run %q of %x has the address %x, not %x", ErrDiffers, s.RunID, r.Main, address, r.address)
	}
	return nil
}

// checkHead returns an error unless the event is the next one in the hash chain.
func checkHead(previous [32]byte, e *event.Event, by event.Cause) error {
	if head := e.Next(previous, by); head != e.Head {
		return fmt.Errorf("%w: change %d has head %x, but its event has %x", ErrDiffers, e.Sequence, head, e.Head)
	}
	return nil
}

func (r *Run) act(signer [32]byte, data []byte, e *event.Event) error {
	if len(data) < 9 {
		return fmt.Errorf("%w: an instruction with an action has %d bytes, want at least 9", ErrDiffers, len(data))
	}
	by := event.Cause{Actor: signer, Nonce: le.Uint64(data), Data: data[8:]}
	if err := checkHead(r.Head, e, by); err != nil {
		return err
	}
	body, update := by.Data, by.Data[0] == kindUpdateConfig
	if update {
		b, err := r.staged(by.Data[1:])
		if err != nil {
			return err
		}
		body = append([]byte{kindUpdateConfig}, b...)
	}
	action, err := wire.DecodeAction(body)
	if proof, ok := action.(coordinator.Equivocation); ok && !wire.Proves(proof, wire.ChainRun(r.program, r.address)) {
		err = wire.ErrSignature
	}
	if err == nil {
		err = r.State.Apply(signer, by.Nonce, action)
	}
	if err != nil {
		return fmt.Errorf("%w: change %d, an action of kind %d: %w", ErrDiffers, e.Sequence, body[0], err)
	}
	if update {
		r.stage = nil
	}
	return nil
}

func (r *Run) tick(e *event.Event) error {
	if err := checkHead(r.Head, e, event.Cause{}); err != nil {
		return err
	}
	s := r.State.Clone()
	if !s.Tick(e.Now, e.Draw) {
		return fmt.Errorf("%w: change %d is a tick, but no tick was due", ErrDiffers, e.Sequence)
	}
	r.State = s
	return nil
}
