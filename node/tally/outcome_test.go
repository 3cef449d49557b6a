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
	tally := openTally(round)
	list := []Commitment{clienttest.Hash(1), clienttest.Hash(2), clienttest.Hash(3)}
	for i := range tally.Slots {
		s := &tally.Slots[i]
		if err := tally.Receive(identity.ID(s.Owner), clienttest.Announcement(s.Batch, list[i], [32]byte{}), nil); err != nil {
			t.Fatal(err)
		}
		if i != 1 { // even if the client has not fetched it
			s.Candidates[0].State = Held
		}
	}
	tally.Round.Witnesses = clienttest.Proofs(round.Seed, clienttest.Owners(round), list, list)
	tally.Final = true
	o := tally.Decide()
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
		tally := openTally(round)
		s := &tally.Slots[0]
		for _, c := range order {
			if err := tally.Receive(identity.ID(s.Owner), clienttest.Announcement(s.Batch, c, mine), nil); err != nil && !errors.Is(err, ErrEquivocation) {
				t.Fatal(err)
			}
		}
		if err := tally.Receive(identity.ID(tally.Slots[1].Owner), clienttest.Announcement(tally.Slots[1].Batch, clienttest.Hash(0), foreign), nil); err != nil {
			t.Fatal(err)
		}
		for j := range tally.Slots {
			for _, c := range tally.Slots[j].Candidates {
				c.State = Held
			}
		}
		if tally.HeldOf(s) != nil {
			t.Error("a result is held although this client's replica is not known yet")
		}
		tally.Begin(mine)
		proof, count := tally.Witness()
		if count != 1 || tally.HeldOf(&tally.Slots[1]) != nil || tally.HeldOf(s).Commitment != clienttest.Hash(1) {
			t.Errorf("%d held, %x", count, tally.HeldOf(s).Commitment)
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
	tally := openTally(round)
	list := make([]Commitment, len(tally.Slots))
	list[0] = holds
	round.Witnesses = clienttest.Proofs(round.Seed, clienttest.Owners(round), list, list, list)
	tally.Renew(round, true)
	return tally
}

// say passes an announcement of the first batch's trainer to the tally.
func say(t *Tally, c Commitment) {
	s := &t.Slots[0]
	_ = t.Receive(identity.ID(s.Owner), clienttest.Announcement(s.Batch, c, [32]byte{}), c[:])
}

// TestFinishedRoundIsDecidedOnce checks that newer states of the run do not change the decision
// about a finished round. Announcements, held results, witnesses and lack of room do.
func TestFinishedRoundIsDecidedOnce(t *testing.T) {
	tally := finishedBook(clienttest.Hash(1))
	s := &tally.Slots[0]
	judge := func() Outcome { return tally.Judge(time.Time{}, true) }
	if o := judge(); o.Missing != 1 || !o.open {
		t.Fatalf("outcome %+v", o)
	}
	const mark = 99
	tally.judged.outcome.Missing = mark
	fresh := tally.Round
	fresh.Witnesses = slices.Clone(fresh.Witnesses) // from a newer state
	tally.Renew(fresh, true)
	if judge().Missing != mark {
		t.Error("decided again although nothing has changed")
	}
	for name, change := range map[string]func(){
		"a result was received":    func() { say(tally, clienttest.Hash(1)) },
		"there was no room for it": func() { tally.NoRoom(s.Candidates[0], true) },
		"there is room again":      func() { tally.NoRoom(s.Candidates[0], false) },
		"a result is held":         func() { tally.Hold(s, s.Candidates[0], 1) },
		"a result was lost":        func() { tally.Lost(s.Candidates, func(*Candidate) time.Time { return time.Time{} }) },
		"another witness was received": func() {
			more := tally.Round
			more.Witnesses = append(slices.Clone(more.Witnesses), coordinator.Witness{Member: 9})
			tally.Renew(more, true)
		},
		"the replica became known": func() { tally.Begin([32]byte{}) },
	} {
		if len(s.Candidates) == 0 {
			say(tally, clienttest.Hash(1))
		}
		switch name {
		case "a result was received":
			s.Candidates = nil
		case "there is room again":
			tally.NoRoom(s.Candidates[0], true)
		}
		judge()
		tally.judged.outcome.Missing = mark
		if change(); judge().Missing == mark {
			t.Errorf("not decided again when %s", name)
		}
	}
}

// TestWantOfRoomIsSaid checks that lack of room is reported for a result that counts, until it is
// held.
func TestWantOfRoomIsSaid(t *testing.T) {
	tally := finishedBook(clienttest.Hash(1))
	s := &tally.Slots[0]
	say(tally, clienttest.Hash(1))
	c := s.Candidates[0]
	for i, step := range []struct {
		change func()
		want   bool
	}{
		{func() {}, false},
		{func() { tally.Fetch(c); tally.NoRoom(c, true); tally.Retry(c, time.Time{}) }, true},
		{func() { tally.NoRoom(c, false); tally.Retry(c, time.Time{}) }, false},
		{func() { tally.NoRoom(c, true); tally.Hold(s, c, 1) }, false},
	} {
		step.change()
		if o := tally.Judge(time.Time{}, true); o.NoRoom != step.want {
			t.Errorf("after change %d: outcome %+v", i, o)
		}
	}
}

// TestDecisionsPause checks that a finished round is not decided again for each announcement, while
// results are missing and more announcements may arrive.
func TestDecisionsPause(t *testing.T) {
	tally, now := finishedBook(clienttest.Hash(1)), time.Now()
	s := &tally.Slots[0]
	say(tally, clienttest.Hash(2))
	if o := tally.Judge(now, false); o.Missing != 1 || !o.open {
		t.Fatalf("outcome %+v", o)
	}
	say(tally, clienttest.Hash(1))
	if o := tally.Judge(now.Add(JudgePause-1), false); !o.open {
		t.Error("decided again at once")
	}
	now = now.Add(JudgePause)
	if o := tally.Judge(now, false); o.open || o.Missing != 1 {
		t.Errorf("after the pause: outcome %+v", o)
	}
	one, other := s.Candidates[1], s.Candidates[0]
	tally.Hold(s, one, 1)
	if o := tally.Judge(now, false); o.Missing != 1 {
		t.Error("decided again although another result is still to come")
	}
	if o := tally.Judge(now, true); o.Missing != 0 {
		t.Error("not decided although there is no time left")
	}
	tally.judged.outcome.Missing = 1
	tally.Fetch(other)
	tally.Hold(s, other, 1)
	if o := tally.Judge(now, false); o.Missing != 0 {
		t.Error("not decided although everything is held")
	}
}

// TestVotesAreCountedOnce checks that votes are counted once for all states with the same
// witnesses.
func TestVotesAreCountedOnce(t *testing.T) {
	tally := finishedBook(clienttest.Hash(1))
	c := &Candidate{Commitment: clienttest.Hash(1)}
	tally.Slots[0].Candidates = []*Candidate{c}
	if got := tally.votes(c); got != 3 {
		t.Fatalf("%d votes", got)
	}
	c.votes = 99
	fresh := tally.Round
	fresh.Witnesses = slices.Clone(fresh.Witnesses)
	tally.Renew(fresh, true)
	if tally.votes(c) != 99 || !tally.Final {
		t.Error("counted again although nothing has changed")
	}
	fresh.Witnesses = fresh.Witnesses[:2]
	if tally.Renew(fresh, true); tally.votes(c) != 2 {
		t.Errorf("%d votes of two witnesses", tally.votes(c))
	}
}

// TestReleaseForgetsResultsThatDidNotCount checks that results that did not count are forgotten,
// and that payloads are removed from memory.
func TestReleaseForgetsResultsThatDidNotCount(t *testing.T) {
	tally := finishedBook(clienttest.Hash(1))
	s := &tally.Slots[0]
	for _, n := range []byte{1, 2} {
		say(tally, clienttest.Hash(n))
		tally.Hold(s, s.Candidates[n-1], 1)
		s.Candidates[n-1].Payload = []byte("x")
	}
	o := tally.Judge(time.Time{}, true)
	if others := tally.Release(o); o.Missing != 0 || !slices.Equal(others, []Commitment{clienttest.Hash(2)}) {
		t.Errorf("outcome %+v, others %x", o, others)
	}
	for i, want := range []State{Held, Refused} {
		if c := s.Candidates[i]; c.State != want || c.Payload != nil {
			t.Errorf("result %d: %+v", i, c)
		}
	}
}
