package localnet

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
)

// memoryLog is a log that keeps only committed entries after a crash.
type memoryLog struct {
	durable, pending [][]byte
	full             error // error that Commit returns
}

func (m *memoryLog) Append(entry []byte) error {
	m.pending = append(m.pending, slices.Clone(entry))
	return nil
}

func (m *memoryLog) Commit() error {
	if m.full != nil {
		return m.full
	}
	m.durable, m.pending = append(m.durable, m.pending...), nil
	return nil
}

// replayed creates a chain from the durable entries.
func (m *memoryLog) replayed(t *testing.T) *Ledger {
	t.Helper()
	var r Replay
	for _, entry := range m.durable {
		if err := r.Entry(entry); err != nil {
			t.Fatal(err)
		}
	}
	return r.Ledger()
}

// accountsAt returns all accounts of a slot.
func accountsAt(l *Ledger, slot uint64) map[transaction.PublicKey]Account {
	all := map[transaction.PublicKey]Account{}
	for key := range l.state {
		if a, _ := l.state.at(key, slot); a != nil {
			shown := *a
			shown.program = nil
			all[key] = shown
		}
	}
	return all
}

// sameUntil checks that two chains are equal up to a slot.
func sameUntil(t *testing.T, want, got *Ledger, slot uint64) {
	t.Helper()
	if !reflect.DeepEqual(accountsAt(got, slot), accountsAt(want, slot)) {
		t.Errorf("slot %d: the accounts differ", slot)
	}
	a, b := want.slots[:want.index(slot)+1], got.slots[:got.index(slot)+1]
	if len(a) != len(b) {
		t.Fatalf("slot %d: %d slots, want %d", slot, len(b), len(a))
	}
	for i := range a {
		if !reflect.DeepEqual(a[i], b[i]) {
			t.Fatalf("slot %d: %+v, want %+v", slot, b[i], a[i])
		}
	}
}

// TestChainSurvivesKills repeatedly kills a chain. All confirmed slots remain with their blocks, and the chain
// continues from there.
func TestChainSurvivesKills(t *testing.T) {
	log := &memoryLog{}
	c := &chain{TB: t, Ledger: NewLedger(Config{Start: began, Seed: 3}), payer: keyOf("payer")}
	if err := c.Keep(log); err != nil {
		t.Fatal(err)
	}
	program := transaction.PublicKey{1, 1}
	if err := c.SetProgram(program, probe(t)); err != nil {
		t.Fatal(err)
	}
	c.drop(c.payer, 1000*sol)
	g := &generator{chain: c, Rand: rand.New(rand.NewPCG(1, 0)), program: keyOf("program")}
	runSteps(c, deployment(c, g.program, keyOf("buffer"), ""))
	for life := range 4 {
		for i := range 25 {
			runSteps(c, []step{g.step(100*life + i)})
			if g.IntN(3) == 0 {
				c.next()
			}
			if g.IntN(20) == 0 {
				if _, err := c.rollback(1 + g.IntN(3)); err != nil && !errors.Is(err, errRollback) {
					t.Fatal(err)
				}
			}
		}
		for range g.IntN(2 * maxEmptySlots) {
			c.next()
		}
		confirmed, seen := c.At(Confirmed, 0).Slot, c.open().number
		before := c.Ledger
		c.Ledger = log.replayed(t)
		last := c.open().number
		if lost := int64(seen) - int64(last); lost < 0 || lost > maxEmptySlots {
			t.Fatalf("life %d: slot %d after slot %d", life, last, seen)
		}
		sameUntil(t, before, c.Ledger, min(confirmed, last-1))
		log.pending = nil
		if err := c.Keep(log); err != nil {
			t.Fatal(err)
		}
		if now := c.open(); now.number <= seen || len(now.records) > 0 {
			t.Errorf("life %d: it continues in slot %d after slot %d", life, now.number, seen)
		}
	}
	if err := c.Sync(); err != nil {
		t.Fatal(err)
	}
	sameUntil(t, c.Ledger, log.replayed(t), c.open().number)
}

// TestKeptFails checks that a chain confirms nothing while its log has no room.
func TestKeptFails(t *testing.T) {
	log := &memoryLog{}
	c := &chain{TB: t, Ledger: NewLedger(Config{Start: began}), payer: keyOf("payer")}
	if err := c.Keep(log); err != nil {
		t.Fatal(err)
	}
	c.drop(c.payer, sol)
	c.next()
	log.full = errors.New("no room")
	slot := c.open().number
	if r, err := c.submit(c.sign([]identity.Key{c.payer}, transaction.Transfer(public(c.payer), public(keyOf("b")), sol/2))); failure(t, r, err) != "" {
		t.Fatal(err)
	}
	c.next()
	c.next()
	if c.open().number != slot || !errors.Is(c.err(), log.full) || c.At(Confirmed, 0).Account(public(keyOf("b"))) != nil {
		t.Errorf("slot %d, want %d; %v", c.open().number, slot, c.err())
	}
}

// TestReplayRefuses checks that logs that no chain wrote, and a log with a different final state,
// are refused.
func TestReplayRefuses(t *testing.T) {
	log := &memoryLog{}
	c := &chain{TB: t, Ledger: NewLedger(Config{Start: began}), payer: keyOf("payer")}
	if err := c.Keep(log); err != nil {
		t.Fatal(err)
	}
	c.drop(c.payer, sol)
	c.next()
	if r, err := c.submit(c.sign([]identity.Key{c.payer}, transaction.Transfer(public(c.payer), public(keyOf("b")), sol/2))); failure(t, r, err) != "" {
		t.Fatal(err)
	}
	if err := c.Sync(); err != nil {
		t.Fatal(err)
	}
	begin, last := log.durable[0], log.durable[len(log.durable)-1]
	other := slices.Clone(last)
	other[2]++
	for name, entries := range map[string][][]byte{
		"empty":          {{}},
		"no beginning":   {last},
		"two beginnings": {begin, begin},
		"no config":      {{entryBegin, '{'}},
		"half a slot":    {begin, {entrySlots, 1}},
		"unknown":        {begin, {99}},
		"another end":    append(slices.Clone(log.durable[:len(log.durable)-1]), other),
	} {
		var r Replay
		var err error
		for _, entry := range entries {
			if err = r.Entry(entry); err != nil {
				break
			}
		}
		if !errors.Is(err, errReplay) {
			t.Errorf("%s: got %v; want error errReplay", name, err)
		}
		golden.Message(t, name, err)
	}
}
