package programtest

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/chain/replay"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// entry is an accepted instruction with its log.
type entry struct {
	actor  [32]byte
	data   []byte
	logged [][]byte
}

// recorded plays a run with random clients on the program and returns the chain's records of it.
// The host is the account's address, as on the chain, so it never acts.
func recorded(t *testing.T, seed uint64) (*pair, *deployed, []entry) {
	t.Helper()
	g := newGenerator(seed, 6)
	g.signed = true
	d := newDeployed(loadProgram(t))
	r := newPair(d)
	var entries []entry
	d.log = func(actor [32]byte, data []byte, logged [][]byte) {
		entries = append(entries, entry{actor, data, logged})
	}
	genesis := g.genesis()
	genesis.MainAuthority, genesis.JoinAuthority = g.ids[1], g.ids[2]
	genesis.Host = addressWithSeed(genesis.MainAuthority, genesis.RunID)
	code, err := r.genesis(genesis)
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		return nil, nil, nil
	}
	if err := errors.Join(g.admit(r), g.walk(r, 150)); err != nil {
		t.Fatal(err)
	}
	return r, d, entries
}

// TestReplay checks that runs can be reconstructed from instructions and events alone.
func TestReplay(t *testing.T) {
	changes := 0
	for seed := uint64(1); seed <= 14; seed++ {
		r, d, entries := recorded(t, seed)
		if r == nil {
			continue
		}
		again := replay.New(programID, d.run.Key)
		for i, e := range entries {
			if err := again.Do(e.actor, e.data, e.logged); err != nil {
				t.Fatalf("seed %d, instruction %d: %v", seed, i, err)
			}
		}
		if again.Head != d.want.Head || again.Sequence != d.want.Sequence || again.Main != d.want.Main {
			t.Errorf("seed %d: replayed to change %d, head %x; the account has %d, %x", seed, again.Sequence, again.Head, d.want.Sequence, d.want.Head)
		}
		if !bytes.Equal(again.State.AppendTo(nil), r.s.AppendTo(nil)) {
			t.Errorf("seed %d: replayed to\n%s\nthe run is\n%s", seed, again.State.String(), r.s.String())
		}
		changes += int(again.Sequence)
	}
	if changes < 400 {
		t.Errorf("only %d changes were replayed", changes)
	}
}

// TestReplayFindsChanges checks that a replay detects changes in an archive.
func TestReplayFindsChanges(t *testing.T) {
	r, d, entries := recorded(t, 1)
	if r == nil {
		t.Fatal("no run")
	}
	follow := func(entries []entry) error {
		again := replay.New(programID, d.run.Key)
		for _, e := range entries {
			if err := again.Do(e.actor, e.data, e.logged); err != nil {
				return err
			}
		}
		if again.Sequence != d.want.Sequence || again.Head != d.want.Head {
			return replay.ErrDiffers
		}
		return nil
	}
	if err := follow(entries); err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		if len(e.logged) == 0 {
			continue
		}
		if err := follow(slices.Delete(slices.Clone(entries), i, i+1)); !errors.Is(err, replay.ErrDiffers) {
			t.Fatalf("without entry %d: %v", i, err)
		}
		for bit := range 72 * 8 {
			if bit%29 != i%29 {
				continue
			}
			changed := bytes.Clone(e.logged[0])
			changed[bit/8] ^= 1 << (bit % 8)
			if err := follow(slices.Replace(slices.Clone(entries), i, i+1, entry{e.actor, e.data, [][]byte{changed}})); !errors.Is(err, replay.ErrDiffers) {
				t.Fatalf("entry %d with bit %d of its event changed: %v", i, bit, err)
			}
		}
		if e.data[0] != transaction.RunAct {
			continue
		}
		if err := follow(slices.Replace(slices.Clone(entries), i, i+1, entry{coordinator.ClientID{1}, e.data, e.logged})); !errors.Is(err, replay.ErrDiffers) {
			t.Fatalf("entry %d by a different client: %v", i, err)
		}
		data := bytes.Clone(e.data)
		data[len(data)-1] ^= 1
		if err := follow(slices.Replace(slices.Clone(entries), i, i+1, entry{e.actor, data, e.logged})); !errors.Is(err, replay.ErrDiffers) {
			t.Fatalf("entry %d with a different action: %v", i, err)
		}
	}
}
