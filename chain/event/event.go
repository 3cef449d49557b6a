// Package event reads what the program of the chain logs of a run, and works out what follows from
// it: the chain of hashes over all events, and the draws. A reader that has a run's instructions and events
// can check that none is missing and none was changed.
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

// Size is the number of bytes of an event.
const Size = hashed + 32

const hashed = 4*8 + 32 // what the head hashes of the event itself

var le = binary.LittleEndian

// Instructions that are logged.
const (
	Genesis = 3
	Act     = 4
	Tick    = 5
)

// Event is what is logged of a change of a run's state.
type Event struct {
	Instruction uint64   // Genesis, Act or Tick
	Sequence    uint64   // from 1, which is that of the genesis
	Slot        uint64   // in which it happened
	Now         uint64   // the chain's time then, in milliseconds
	Draw        [32]byte // of a tick that needed one
	Head        [32]byte // of the chain of hashes with this event
}

// Decode reads an event. One that no program logs is an error.
func Decode(b []byte) (Event, error) {
	if len(b) != Size {
		return Event{}, fmt.Errorf("event: has %d bytes, want %d", len(b), Size)
	}
	e := Event{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), [32]byte(b[32:]), [32]byte(b[64:])}
	switch {
	case e.Instruction < Genesis || e.Instruction > Tick:
		return Event{}, fmt.Errorf("event: of instruction %d, want %d to %d", e.Instruction, Genesis, Tick)
	case e.Sequence == 0 || (e.Sequence == 1) != (e.Instruction == Genesis):
		return Event{}, fmt.Errorf("event: number %d of instruction %d: a run starts with event 1, its genesis", e.Sequence, e.Instruction)
	case e.Draw != [32]byte{} && e.Instruction != Tick:
		return Event{}, fmt.Errorf("event: instruction %d has a draw, only a tick can", e.Instruction)
	}
	return e, nil
}

// AppendTo appends the event as it is logged.
func (e *Event) AppendTo(b []byte) []byte {
	for _, v := range [...]uint64{e.Instruction, e.Sequence, e.Slot, e.Now} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, e.Draw[:]...)
	return append(b, e.Head[:]...)
}

// Cause is what made an event. That of a tick is zero, whatever salt it has.
type Cause struct {
	Actor [32]byte // the key that signed
	Nonce uint64   // 0 for a genesis
	Data  []byte   // the instruction's, behind its number and nonce
}

// FirstHead returns what the chain of hashes begins with, before the event of the genesis whose
// bytes have that hash.
func FirstHead(program, run, main, genesis [32]byte) [32]byte {
	return sha256.Sum256(slices.Concat([]byte("psyche/genesis/v1"), program[:], run[:], main[:], genesis[:]))
}

// Next returns the head that this event has to have after the head before it.
func (e *Event) Next(previous [32]byte, by Cause) [32]byte {
	fields := e.AppendTo(nil)[:hashed]
	nonce := le.AppendUint64(nil, by.Nonce)
	return sha256.Sum256(slices.Concat([]byte("psyche/event/v1"), previous[:], fields, by.Actor[:], nonce, by.Data))
}

// Draw returns the draw of a run from the hash of a slot.
func Draw(run [32]byte, slot uint64, hash [32]byte) [32]byte {
	return sha256.Sum256(slices.Concat([]byte("psyche/draw/v1"), run[:], le.AppendUint64(nil, slot), hash[:]))
}
