package event

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

func key(first byte) (k [32]byte) {
	for i := range k {
		k[i] = first + byte(i)
	}
	return k
}

// TestGolden checks that heads and draws do not change, because logs on the chain contain them.
func TestGolden(t *testing.T) {
	first := FirstHead(key(1), key(2), key(3), key(4))
	genesis := Event{Instruction: Genesis, Sequence: 1, Slot: 100, Now: 5000}
	genesis.Head = genesis.Next(first, Cause{Actor: key(3), Data: []byte("named")})
	act := Event{Instruction: Act, Sequence: 2, Slot: 101, Now: 6000}
	act.Head = act.Next(genesis.Head, Cause{Actor: key(5), Nonce: 1 << 40, Data: []byte{1, 0, 0, 0, 0}})
	tick := Event{Instruction: Tick, Sequence: 3, Slot: 104, Now: 7000, Draw: Draw(key(2), 103, key(6))}
	tick.Head = tick.Next(act.Head, Cause{})
	golden.Compare(t, "heads.txt", fmt.Sprintf("%x\n%x\n%x\n%x\n", first, genesis.AppendTo(nil), act.AppendTo(nil), tick.AppendTo(nil)))
}

func TestDecodeReadsWhatAppendToWrites(t *testing.T) {
	for _, e := range []Event{
		{Instruction: Genesis, Sequence: 1, Slot: 2, Now: 3, Head: key(9)},
		{Instruction: Act, Sequence: 1<<64 - 1, Slot: 1<<64 - 1, Now: 1<<64 - 1, Head: key(9)},
		{Instruction: Tick, Sequence: 2, Draw: key(7)},
	} {
		read, err := Decode(e.AppendTo(nil))
		if err != nil || read != e {
			t.Errorf("%+v reads as %+v %v", e, read, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := Event{Instruction: Act, Sequence: 2, Slot: 3, Now: 4}
	for name, b := range map[string][]byte{
		"nothing":             nil,
		"a byte less":         good.AppendTo(nil)[:Size-1],
		"a byte more":         append(good.AppendTo(nil), 0),
		"an INIT":             (&Event{Instruction: 1, Sequence: 2}).AppendTo(nil),
		"a FREE":              (&Event{Instruction: 6, Sequence: 2}).AppendTo(nil),
		"number 0":            (&Event{Instruction: Act}).AppendTo(nil),
		"a late genesis":      (&Event{Instruction: Genesis, Sequence: 2}).AppendTo(nil),
		"an early tick":       (&Event{Instruction: Tick, Sequence: 1}).AppendTo(nil),
		"an action's draw":    (&Event{Instruction: Act, Sequence: 2, Draw: key(1)}).AppendTo(nil),
		"a large instruction": (&Event{Instruction: 4 + 1<<32, Sequence: 2}).AppendTo(nil),
	} {
		if e, err := Decode(b); err == nil {
			t.Errorf("%s was decoded as %+v", name, e)
		}
	}
}

// TestNextDependsOnAll checks that a head depends on every field.
func TestNextDependsOnAll(t *testing.T) {
	e, by := Event{Instruction: Act, Sequence: 2, Slot: 3, Now: 4, Draw: key(5)}, Cause{Actor: key(1), Nonce: 6, Data: []byte{7}}
	seen := map[string]bool{}
	note := func(head [32]byte) {
		if at := hex.EncodeToString(head[:]); seen[at] {
			t.Errorf("%s gives the same head again", at)
		} else {
			seen[at] = true
		}
	}
	note(e.Next(key(2), by))
	note(e.Next(key(3), by))
	for _, change := range []func(*Event, *Cause){
		func(e *Event, _ *Cause) { e.Instruction = Tick }, func(e *Event, _ *Cause) { e.Sequence++ }, func(e *Event, _ *Cause) { e.Slot++ },
		func(e *Event, _ *Cause) { e.Now++ }, func(e *Event, _ *Cause) { e.Draw[31]++ }, func(_ *Event, c *Cause) { c.Actor = key(4) },
		func(_ *Event, c *Cause) { c.Nonce++ }, func(_ *Event, c *Cause) { c.Data = []byte{8} }, func(_ *Event, c *Cause) { c.Data = []byte{7, 0} },
	} {
		other, cause := e, by
		change(&other, &cause)
		note(other.Next(key(2), cause))
	}
	e.Head = key(5)
	if e.Next(key(2), by) != (&Event{Instruction: Act, Sequence: 2, Slot: 3, Now: 4, Draw: key(5)}).Next(key(2), by) {
		t.Error("the next head depends on the head in the event")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&Event{Instruction: Genesis, Sequence: 1, Slot: 2, Now: 3, Head: key(9)}).AppendTo(nil))
	f.Add((&Event{Instruction: Tick, Sequence: 2, Draw: key(1), Head: key(9)}).AppendTo(nil))
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err != nil {
			return
		}
		if again := e.AppendTo(nil); !bytes.Equal(again, b) {
			t.Errorf("%x was decoded, but is encoded as %x", b, again)
		}
	})
}
