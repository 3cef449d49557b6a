// Package event decodes the events that the program on the chain logs for a run, and computes what
// follows from them: the hash chain over all events, and the draws. A reader with a run's
// instructions and events can verify that none is missing or modified.
//
//	e, err := event.Decode(logged)
//	head := e.Next(previous, event.Cause{Actor: actor, Nonce: nonce, Data: action[:]})
package event

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// Size is the size of an event in bytes.
const Size = hashed + 32

const hashed = 4*8 + 32 // bytes of the event that the head hashes

var le = binary.LittleEndian

// Instructions that log events.
const (
	Genesis = 3
	Act     = 4
	Tick    = 5
)

// Event is the log entry of one change of a run's state.
type Event struct {
	Instruction uint64   // Genesis, Act or Tick
	Sequence    uint64   // 1 for the genesis
	Slot        uint64   // slot of the change
	Now         uint64   // the chain's time, in milliseconds
	Draw        [32]byte // for a tick that needed one
	Head        [32]byte // of the hash chain, including this event
}

// Decode parses an event. It returns an error for bytes that the program cannot log.
func Decode(b []byte) (Event, error) {
	if len(b) != Size {
		return Event{}, fmt.Errorf("event: %d bytes, want %d", len(b), Size)
	}
	e := Event{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), [32]byte(b[32:]), [32]byte(b[64:])}
	switch {
	case e.Instruction < Genesis || e.Instruction > Tick:
		return Event{}, fmt.Errorf("event: instruction %d, want %d to %d", e.Instruction, Genesis, Tick)
	case e.Sequence == 0 || (e.Sequence == 1) != (e.Instruction == Genesis):
		return Event{}, fmt.Errorf("event: number %d of instruction %d: a run starts with event 1, its genesis", e.Sequence, e.Instruction)
	case e.Draw != [32]byte{} && e.Instruction != Tick:
		return Event{}, fmt.Errorf("event: instruction %d has a draw, but only a tick can have one", e.Instruction)
	}
	return e, nil
}

// AppendTo appends the event's encoding in the log.
func (e *Event) AppendTo(b []byte) []byte {
	for _, v := range [...]uint64{e.Instruction, e.Sequence, e.Slot, e.Now} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, e.Draw[:]...)
	return append(b, e.Head[:]...)
}

// Cause is the instruction behind an event. For a tick it is zero, whatever the tick's salt.
type Cause struct {
	Actor [32]byte // the key that signed
	Nonce uint64   // 0 for a genesis
	Data  []byte   // the instruction's data after its number and nonce
}

// FirstHead returns the head of the hash chain before the genesis event; genesis is the hash of the
// genesis.
func FirstHead(program, run, main, genesis [32]byte) [32]byte {
	return sha256.Sum256(slices.Concat([]byte("psyche/genesis/v1"), program[:], run[:], main[:], genesis[:]))
}

// Next returns the head that the event must have after the previous head.
func (e *Event) Next(previous [32]byte, by Cause) [32]byte {
	fields := e.AppendTo(nil)[:hashed]
	nonce := le.AppendUint64(nil, by.Nonce)
	return sha256.Sum256(slices.Concat([]byte("psyche/event/v1"), previous[:], fields, by.Actor[:], nonce, by.Data))
}

// Draw returns the draw of a run from the hash of a slot.
func Draw(run [32]byte, slot uint64, hash [32]byte) [32]byte {
	return sha256.Sum256(slices.Concat([]byte("psyche/draw/v1"), run[:], le.AppendUint64(nil, slot), hash[:]))
}
