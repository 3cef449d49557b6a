package replay

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

var program, mainKey = [32]byte{1}, [32]byte{3}

// address is the address of the run.
var address = func() [32]byte {
	address, err := transaction.Program(program).RunAddress(mainKey, "replay")
	if err != nil {
		panic(err)
	}
	return address
}()

// entry is an instruction as the chain stores it.
type entry struct {
	signer [32]byte
	data   []byte
	logged [][]byte
}

// archive is a manually written run of four changes. Package programtest replays real ones.
func archive() []entry { return begun(coordinator.ClientID(address), mainKey) }

// begun returns that run, with a different host or main authority in its genesis if these are set.
func begun(host, main coordinator.ClientID) []entry { return begunBy(mainKey, host, main) }

// begunBy returns the run with a beginning that is signed by the given key.
func begunBy(signer [32]byte, host, main coordinator.ClientID) []entry {
	genesis := layout.AppendGenesis(nil, coordinator.Genesis{
		RunID: "replay", Host: host, MainAuthority: main, Paused: true,
		Config: coordinator.Config{
			WarmupTime: 30_000, CooldownTime: 20_000, RoundsPerEpoch: 6, MaxRoundTrainTime: 50_000, RoundWitnessTime: 5000, WaitingForMembersExtraTime: 3000,
			GlobalBatchSizeStart: 4, GlobalBatchSizeEnd: 4, TotalSteps: 100, InitMinClients: 2, MinClients: 2,
		},
		Model: coordinator.Model{MaxSeqLen: 16, Definition: []byte("d"), Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}},
	})
	digest := sha256.Sum256(genesis)
	named := append(le.AppendUint32(nil, uint32(len(genesis))), digest[:]...)
	head := event.FirstHead(program, address, signer, digest)
	change := func(number byte, sequence, now uint64, by event.Cause) [][]byte {
		e := event.Event{Instruction: uint64(number), Sequence: sequence, Slot: 7, Now: now}
		e.Head = e.Next(head, by)
		head = e.Head
		return [][]byte{e.AppendTo(nil)}
	}
	act := func(nonce uint64, a coordinator.Action) ([]byte, event.Cause) {
		action := wire.AppendAction(nil, a)
		return append(le.AppendUint64([]byte{opAct}, nonce), action...), event.Cause{Actor: signer, Nonce: nonce, Data: action}
	}
	resume, cause := act(1, coordinator.SetPaused{})
	return []entry{
		{signer, []byte{opInit}, nil},
		{signer, append([]byte{opWrite, 50, 0, 0, 0}, genesis[50:]...), nil},
		{signer, append([]byte{opWrite, 0, 0, 0, 0}, genesis[:60]...), nil},
		{signer, append([]byte{opGenesis}, named...), change(opGenesis, 1, 1000, event.Cause{Actor: signer, Data: named})},
		{[32]byte{}, []byte{opTick, 1}, nil}, // nothing is due
		{signer, resume, change(opAct, 2, 2000, cause)},
		{[32]byte{}, []byte{opTick}, change(opTick, 3, 3000, event.Cause{})},
	}
}

func TestDo(t *testing.T) {
	r := New(program, address)
	for i, e := range archive() {
		if err := r.Do(e.signer, e.data, e.logged); err != nil {
			t.Fatalf("instruction %d: %v", i, err)
		}
	}
	if r.Sequence != 3 || r.State.RunState != coordinator.WaitingForMembers || r.State.StateStart != 3000 || r.Main != mainKey {
		t.Errorf("replayed to change %d: %s", r.Sequence, r.State.String())
	}
}

// TestDoRefuses changes one instruction of the archive. The run must stay as it was before that
// instruction.
func TestDoRefuses(t *testing.T) {
	late := event.Event{Instruction: opTick, Sequence: 4, Slot: 8, Now: 4000}
	for name, test := range map[string]struct {
		at     int
		change func(*entry)
	}{
		"no data":                     {4, func(e *entry) { e.data = nil }},
		"a short piece":               {1, func(e *entry) { e.data = e.data[:4] }},
		"a piece too far":             {1, func(e *entry) { e.data[4] = 1 }},
		"another genesis":             {3, func(e *entry) { e.data[10] ^= 1 }},
		"a longer genesis":            {3, func(e *entry) { e.data[3] = 1 }},
		"a cut genesis":               {3, func(e *entry) { e.data = e.data[:30] }},
		"a silent genesis":            {3, func(e *entry) { e.logged = nil }},
		"another's genesis":           {3, func(e *entry) { e.signer[5] = 1 }},
		"a silent action":             {5, func(e *entry) { e.logged = nil }},
		"another's action":            {5, func(e *entry) { e.signer[5] = 1 }},
		"another nonce":               {5, func(e *entry) { e.data[1]++ }},
		"a cut action":                {5, func(e *entry) { e.data = e.data[:8] }},
		"another's piece":             {1, func(e *entry) { e.signer[5] = 1 }},
		"a logging piece":             {1, func(e *entry) { e.logged = [][]byte{late.AppendTo(nil)} }},
		"a tick too late":             {6, func(e *entry) { e.logged = [][]byte{late.AppendTo(nil)} }},
		"a tick's event of an action": {6, func(e *entry) { e.data = []byte{opAct} }},
		"two events":                  {6, func(e *entry) { e.logged = append(e.logged, e.logged[0]) }},
		"half an event":               {6, func(e *entry) { e.logged = [][]byte{e.logged[0][:71]} }},
		"another time":                {6, func(e *entry) { e.logged[0][24]++ }},
	} {
		t.Run(name, func(t *testing.T) {
			r, entries := New(program, address), archive()
			for _, e := range entries[:test.at] {
				if err := r.Do(e.signer, e.data, e.logged); err != nil {
					t.Fatal(err)
				}
			}
			before, state := *r, r.State.AppendTo(nil)
			e := entries[test.at]
			test.change(&e)
			if err := r.Do(e.signer, e.data, e.logged); !errors.Is(err, ErrDiffers) {
				t.Errorf("%v, want %v", err, ErrDiffers)
			}
			if r.Sequence != before.Sequence || r.Head != before.Head || !bytes.Equal(state, r.State.AppendTo(nil)) {
				t.Error("a refused action changes the run")
			}
		})
	}
}

// TestDoRefusesAnothersRun begins runs that the main authority of the address did not write.
func TestDoRefusesAnothersRun(t *testing.T) {
	for name, entries := range map[string][]entry{
		"another host":           begun(coordinator.ClientID{4}, mainKey),
		"another main authority": begun(address, coordinator.ClientID{4}),
	} {
		r := New(program, address)
		var err error
		for _, e := range entries[:4] {
			err = errors.Join(err, r.Do(e.signer, e.data, e.logged))
		}
		if !errors.Is(err, ErrDiffers) || r.Sequence != 0 {
			t.Errorf("%s: %v, want %v", name, err, ErrDiffers)
		}
	}
	// The whole archive is for a different address.
	thief, r := [32]byte{9}, New(program, address)
	var err error
	for _, e := range begunBy(thief, coordinator.ClientID(address), thief)[:4] {
		err = errors.Join(err, r.Do(e.signer, e.data, e.logged))
	}
	if !errors.Is(err, ErrDiffers) || r.Sequence != 0 {
		t.Errorf("a different address: %v, want %v", err, ErrDiffers)
	}
}

// FuzzDo checks that arbitrary logs of an endpoint are followed or refused.
func FuzzDo(f *testing.F) {
	for i, e := range archive() {
		var logged []byte
		if len(e.logged) > 0 {
			logged = e.logged[0]
		}
		f.Add(uint8(i), e.data, logged)
	}
	fuzztest.Run(f, func(t *testing.T, after uint8, data, logged []byte) {
		r, entries := New(program, address), archive()
		for _, e := range entries[:int(after)%len(entries)] {
			if err := r.Do(e.signer, e.data, e.logged); err != nil {
				t.Fatal(err)
			}
		}
		var pieces [][]byte
		if len(logged) > 0 {
			pieces = [][]byte{logged}
		}
		if r.Do(mainKey, data, pieces) == nil && r.Sequence > 0 {
			if err := r.State.Check(); err != nil {
				t.Error(err)
			}
		}
	})
}
