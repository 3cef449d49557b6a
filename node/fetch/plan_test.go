package fetch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/tally"
)

// TestTimeout checks the timeout of a fetch while other fetches wait.
func TestTimeout(t *testing.T) {
	p := newPlan(8, &Rotation{})
	if got := p.timeout(1<<20, 0, completion); got != completion/8 {
		t.Errorf("with no measurement: %v, want an eighth of the time to complete", got)
	}
	if got := p.timeout(1<<20, 9, completion); got != completion {
		t.Errorf("after many attempts: %v, want all of the time to complete", got)
	}
	p.measure(1<<20, time.Second)
	if got := p.timeout(2<<20, 0, completion); got != minTimeout+2*slowFactor*time.Second {
		t.Errorf("twice the size of a transfer of 1 s: %v", got)
	}
	if got := p.timeout(1<<40, 0, completion); got != minTimeout+completion/2 {
		t.Errorf("whatever the size: %v, want at most half of the time to complete", got)
	}
}

// TestFailedAndUnneededTakeTurns checks that needed results come first until they fail.
func TestFailedAndUnneededTakeTurns(t *testing.T) {
	list := []want{
		{setbacks: 3, need: tally.Needed}, {setbacks: 0, need: tally.Supported}, {setbacks: 1, need: tally.Needed}, {setbacks: 0, need: tally.Needed},
		{setbacks: 1, need: tally.Telling}, {setbacks: 0, need: tally.Telling}, {setbacks: 2, need: tally.Needed},
	}
	order := func(failedFirst bool) (got string) {
		wants := slices.Clone(list)
		inOrder(wants, failedFirst)
		for _, w := range wants {
			got += fmt.Sprint(" ", w.need, w.setbacks)
		}
		return got
	}
	if got, want := order(false), " 0 0 1 0 0 1 2 0 0 2 1 1 0 3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := order(true), " 0 0 0 1 1 0 0 2 2 0 0 3 1 1"; got != want {
		t.Errorf("failed ones first: got %s, want %s", got, want)
	}
}

// disagree makes the witnesses of a round sign different roots.
func disagree(t *tally.Tally) {
	for k := range t.Round.Witnesses {
		t.Round.Witnesses[k].CommitmentsRoot = clienttest.Hash(byte(7 + k))
	}
}

// TestOnlyResultsThatMayCountAreFetched checks which results of a running round, of a finished
// round, and of a round with a known outcome are fetched.
func TestOnlyResultsThatMayCountAreFetched(t *testing.T) {
	one, two, three, four := clienttest.Hash(1), clienttest.Hash(2), clienttest.Hash(3), clienttest.Hash(4)
	judge := func(t *tally.Tally) { t.Judge(time.Time{}, true) }
	for name, test := range map[string]struct {
		change func(votes *tally.Tally, s *tally.Slot)
		want   []tally.Commitment
	}{
		"running":        {func(t *tally.Tally, _ *tally.Slot) { t.Final = false }, []tally.Commitment{one, two, three}},
		"root agreed":    {func(*tally.Tally, *tally.Slot) {}, []tally.Commitment{one, two}},
		"decided":        {func(t *tally.Tally, _ *tally.Slot) { judge(t) }, []tally.Commitment{one}},
		"no root agreed": {func(t *tally.Tally, _ *tally.Slot) { disagree(t) }, []tally.Commitment{one}},
		"no root agreed, decided, but not sure": {func(t *tally.Tally, s *tally.Slot) {
			disagree(t)
			t.Hold(s, s.Candidates[0], 1)
			judge(t)
		}, []tally.Commitment{clienttest.Hash(2)}},
		"no root agreed, what counts is missing": {func(t *tally.Tally, _ *tally.Slot) {
			disagree(t)
			judge(t)
		}, []tally.Commitment{one, two}},
		"no root agreed, what counts has failed": {func(t *tally.Tally, s *tally.Slot) {
			disagree(t)
			s.Candidates[0].Attempts = 1
			judge(t)
		}, []tally.Commitment{two, one}},
		"no root agreed, one of another batch has no rival": {func(t *tally.Tally, s *tally.Slot) {
			disagree(t)
			t.Round.Witnesses[0].Commitments.Add(t.Round.Seed, four[:])
			s.Candidates, t.Slots[1].Candidates = []*tally.Candidate{{Commitment: four}}, s.Candidates
			judge(t)
		}, []tally.Commitment{one, two, four}},
		"no quorum": {func(t *tally.Tally, _ *tally.Slot) { t.Round.Witnesses = t.Round.Witnesses[:1] }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, one)
			r.tally.Round.Witnesses[0].Commitments.Add(r.tally.Round.Seed, two[:])
			for _, c := range []tally.Commitment{one, two, three} {
				r.enter(t, r.slot, c)
			}
			test.change(r.tally, r.slot)
			if got := r.wants(); !slices.Equal(got, test.want) {
				t.Errorf("got %x, want %x", got, test.want)
			}
		})
	}
}

// TestHolders checks the order of requests. The trainer is first, unless it is Byzantine or stalls. Other
// members take turns after it, and stalling members come last.
func TestHolders(t *testing.T) {
	const members, trainer, me, slow, slower = 5, 0, 1, 2, 3
	id := func(n int) identity.ID { return clienttest.Key(n).ID() }
	tallied := &tally.Tally{}
	for i := range members {
		tallied.Round.Members = append(tallied.Round.Members, coordinator.ClientID(id(i)))
	}
	slot := &tally.Slot{Owner: coordinator.ClientID(id(trainer))}
	order := func(p *Plan, c *tally.Candidate) (order string) {
		for _, holder := range p.holders(id(me), want{Tally: tallied, Slot: slot, Candidate: c}) {
			order += fmt.Sprint(slices.Index(tallied.Round.Members, coordinator.ClientID(holder)))
		}
		return order
	}
	for name, test := range map[string]struct {
		stalls   map[int]int
		disputed bool
		want     []string // expected order of each turn
	}{
		"all are quick":            {nil, false, []string{"0234", "0234", "0342", "0423", "0234"}},
		"some stall":               {map[int]int{slow: 1, slower: 2}, false, []string{"0423", "0423", "0423"}},
		"the trainer stalls":       {map[int]int{trainer: 1}, false, []string{"2340", "2340", "3420"}},
		"the trainer is Byzantine": {nil, true, []string{"2340", "2340", "3420"}},
	} {
		p := newPlan(1, &Rotation{})
		for member, count := range test.stalls {
			p.stalls[id(member)] = count
		}
		for turn, want := range test.want {
			if got := order(p, &tally.Candidate{Disputed: test.disputed}); got != want {
				t.Errorf("%s, turn %d: asked %s, want %s", name, turn, got, want)
			}
		}
		for member, count := range test.stalls { // a member that was away starts again without stalls, but only once
			for _, left := range []int{0, count} {
				p.stalls[id(member)] = count
				if p.IsBack(id(member)); p.stalls[id(member)] != left {
					t.Errorf("%s: a member with %d stalls comes back: %d are left, want %d", name, count, p.stalls[id(member)], left)
				}
			}
		}
		p.ForgetStalls()
		if got := order(p, &tally.Candidate{}); got[0] != '0' {
			t.Errorf("%s, in the next epoch: asked %s", name, got)
		}
	}
	for i := range 20 {
		tallied.Round.Members = append(tallied.Round.Members, coordinator.ClientID{byte(i), 9})
	}
	if got := newPlan(1, &Rotation{}).holders(id(me), want{Tally: tallied, Slot: slot, Candidate: &tally.Candidate{}}); len(got) != maxHolders {
		t.Errorf("%d of %d members are asked", len(got), len(tallied.Round.Members))
	}
}
