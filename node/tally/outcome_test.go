package tally

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
)

// TestWarmingResultsDoNotCount checks that the result of a trainer with a young optimizer is
// witnessed like any other result, but not applied.
func TestWarmingResultsDoNotCount(t *testing.T) {
	round := clienttest.Round()
	member := round.Assignments(clienttest.Config(3))[1].Member
	round.Warming[member/8] |= 1 << (member % 8)
	b := openBook(round)
	list := []Commitment{clienttest.Hash(1), clienttest.Hash(2), clienttest.Hash(3)}
	for i := range b.Slots {
		s := &b.Slots[i]
		if err := b.Hear(identity.ID(s.Owner), clienttest.Announcement(s.Batch, list[i], [32]byte{}), nil); err != nil {
			t.Fatal(err)
		}
		if i != 1 { // even if the client has not fetched it
			s.Candidates[0].State = Held
		}
	}
	b.Round.Witnesses = clienttest.Proofs(round.Seed, clienttest.Owners(round), list, list)
	b.Final = true
	o := b.Decide()
	if o.Missing != 0 || len(o.Counted) != 2 || o.Counted[0].Commitment != clienttest.Hash(1) || o.Counted[1].Commitment != clienttest.Hash(3) {
		t.Errorf("outcome %+v", o)
	}
	if len(o.Lost) != 1 || o.Lost[0].Owner != round.Members[member] {
		t.Errorf("lost %+v", o.Lost)
	}
}

// TestHeldIsIndependentOfOrder holds two results of one batch. The client proves the same result
// whichever came first, and never a result of a different replica.
func TestHeldIsIndependentOfOrder(t *testing.T) {
	mine, foreign := [32]byte{1}, [32]byte{2}
	var roots [2][32]byte
	for i, order := range [][]Commitment{{clienttest.Hash(1), clienttest.Hash(2)}, {clienttest.Hash(2), clienttest.Hash(1)}} {
		round := clienttest.Round()
		b := openBook(round)
		s := &b.Slots[0]
		for _, c := range order {
			if err := b.Hear(identity.ID(s.Owner), clienttest.Announcement(s.Batch, c, mine), nil); err != nil && !errors.Is(err, ErrEquivocation) {
				t.Fatal(err)
			}
		}
		if err := b.Hear(identity.ID(b.Slots[1].Owner), clienttest.Announcement(b.Slots[1].Batch, clienttest.Hash(0), foreign), nil); err != nil {
			t.Fatal(err)
		}
		for j := range b.Slots {
			for _, c := range b.Slots[j].Candidates {
				c.State = Held
			}
		}
		if b.HeldOf(s) != nil {
			t.Error("a result is held although this client's replica is not known yet")
		}
		b.Begin(mine)
		proof, count := b.Witness()
		if count != 1 || b.HeldOf(&b.Slots[1]) != nil || b.HeldOf(s).Commitment != clienttest.Hash(1) {
			t.Errorf("%d held, %x", count, b.HeldOf(s).Commitment)
		}
		roots[i] = proof.CommitmentsRoot
	}
	if roots[0] != roots[1] {
		t.Error("the root depends on the order of arrival")
	}
}

// finishedBook returns the tally of a finished round. Each of the three witnesses holds one result:
// the given result of the first batch.
func finishedBook(holds Commitment) *Tally {
	round := clienttest.Round()
	b := openBook(round)
	list := make([]Commitment, len(b.Slots))
	list[0] = holds
	round.Witnesses = clienttest.Proofs(round.Seed, clienttest.Owners(round), list, list, list)
	b.Renew(round, true)
	return b
}

// say passes an announcement of the first batch's trainer to the tally.
func say(t *Tally, c Commitment) {
	s := &t.Slots[0]
	_ = t.Hear(identity.ID(s.Owner), clienttest.Announcement(s.Batch, c, [32]byte{}), c[:])
}

// TestFinishedRoundIsDecidedOnce checks that newer states of the run do not change the decision
// about a finished round. Announcements, held results, witnesses and lack of room do.
func TestFinishedRoundIsDecidedOnce(t *testing.T) {
	b := finishedBook(clienttest.Hash(1))
	s := &b.Slots[0]
	judge := func() Outcome { return b.Judge(time.Time{}, true) }
	if o := judge(); o.Missing != 1 || !o.open {
		t.Fatalf("outcome %+v", o)
	}
	const mark = 99
	b.judged.outcome.Missing = mark
	fresh := b.Round
	fresh.Witnesses = slices.Clone(fresh.Witnesses) // from a newer state
	b.Renew(fresh, true)
	if judge().Missing != mark {
		t.Error("decided again although nothing has changed")
	}
	for name, change := range map[string]func(){
		"a result was heard":       func() { say(b, clienttest.Hash(1)) },
		"there was no room for it": func() { b.NoRoom(s.Candidates[0], true) },
		"there is room again":      func() { b.NoRoom(s.Candidates[0], false) },
		"a result is held":         func() { b.Hold(s, s.Candidates[0], 1) },
		"a result was lost":        func() { b.Lost(s.Candidates, func(*Candidate) time.Time { return time.Time{} }) },
		"another witness was heard": func() {
			more := b.Round
			more.Witnesses = append(slices.Clone(more.Witnesses), coordinator.Witness{Member: 9})
			b.Renew(more, true)
		},
		"the replica became known": func() { b.Begin([32]byte{}) },
	} {
		if len(s.Candidates) == 0 {
			say(b, clienttest.Hash(1))
		}
		switch name {
		case "a result was heard":
			s.Candidates = nil
		case "there is room again":
			b.NoRoom(s.Candidates[0], true)
		}
		judge()
		b.judged.outcome.Missing = mark
		if change(); judge().Missing == mark {
			t.Errorf("not decided again when %s", name)
		}
	}
}

// TestWantOfRoomIsSaid checks that lack of room is reported for a result that counts, until it is
// held.
func TestWantOfRoomIsSaid(t *testing.T) {
	b := finishedBook(clienttest.Hash(1))
	s := &b.Slots[0]
	say(b, clienttest.Hash(1))
	c := s.Candidates[0]
	for i, step := range []struct {
		change func()
		want   bool
	}{
		{func() {}, false},
		{func() { b.Fetch(c); b.NoRoom(c, true); b.Retry(c, time.Time{}) }, true},
		{func() { b.NoRoom(c, false); b.Retry(c, time.Time{}) }, false},
		{func() { b.NoRoom(c, true); b.Hold(s, c, 1) }, false},
	} {
		step.change()
		if o := b.Judge(time.Time{}, true); o.NoRoom != step.want {
			t.Errorf("after change %d: outcome %+v", i, o)
		}
	}
}

// TestDecisionsPause checks that a finished round is not decided again for each announcement, while
// results are missing and more announcements may arrive.
func TestDecisionsPause(t *testing.T) {
	b, now := finishedBook(clienttest.Hash(1)), time.Now()
	s := &b.Slots[0]
	say(b, clienttest.Hash(2))
	if o := b.Judge(now, false); o.Missing != 1 || !o.open {
		t.Fatalf("outcome %+v", o)
	}
	say(b, clienttest.Hash(1))
	if o := b.Judge(now.Add(JudgePause-1), false); !o.open {
		t.Error("decided again at once")
	}
	now = now.Add(JudgePause)
	if o := b.Judge(now, false); o.open || o.Missing != 1 {
		t.Errorf("after the pause: outcome %+v", o)
	}
	one, other := s.Candidates[1], s.Candidates[0]
	b.Hold(s, one, 1)
	if o := b.Judge(now, false); o.Missing != 1 {
		t.Error("decided again although another result is still to come")
	}
	if o := b.Judge(now, true); o.Missing != 0 {
		t.Error("not decided although there is no time left")
	}
	b.judged.outcome.Missing = 1
	b.Fetch(other)
	b.Hold(s, other, 1)
	if o := b.Judge(now, false); o.Missing != 0 {
		t.Error("not decided although everything is held")
	}
}

// TestVotesAreCountedOnce checks that votes are counted once for all states with the same
// witnesses.
func TestVotesAreCountedOnce(t *testing.T) {
	b := finishedBook(clienttest.Hash(1))
	c := &Candidate{Commitment: clienttest.Hash(1)}
	b.Slots[0].Candidates = []*Candidate{c}
	if got := b.votes(c); got != 3 {
		t.Fatalf("%d votes", got)
	}
	c.votes = 99
	fresh := b.Round
	fresh.Witnesses = slices.Clone(fresh.Witnesses)
	b.Renew(fresh, true)
	if b.votes(c) != 99 || !b.Final {
		t.Error("counted again although nothing has changed")
	}
	fresh.Witnesses = fresh.Witnesses[:2]
	if b.Renew(fresh, true); b.votes(c) != 2 {
		t.Errorf("%d votes of two witnesses", b.votes(c))
	}
}

// TestReleaseForgetsResultsThatDidNotCount checks that results that did not count are forgotten,
// and that payloads are removed from memory.
func TestReleaseForgetsResultsThatDidNotCount(t *testing.T) {
	b := finishedBook(clienttest.Hash(1))
	s := &b.Slots[0]
	for _, n := range []byte{1, 2} {
		say(b, clienttest.Hash(n))
		b.Hold(s, s.Candidates[n-1], 1)
		s.Candidates[n-1].Payload = []byte("x")
	}
	o := b.Judge(time.Time{}, true)
	if others := b.Release(o); o.Missing != 0 || !slices.Equal(others, []Commitment{clienttest.Hash(2)}) {
		t.Errorf("outcome %+v, others %x", o, others)
	}
	for i, want := range []State{Held, Refused} {
		if c := s.Candidates[i]; c.State != want || c.Payload != nil {
			t.Errorf("result %d: %+v", i, c)
		}
	}
}
