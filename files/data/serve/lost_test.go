package serve

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data/remote/message"
)

// withLost returns a run whose newest round trains lost sequences again. All positions are 100 higher than without
// lost sequences.
func withLost(members, firstRound, rounds, verificationPercent int, lost ...coordinator.Stretch) *coordinator.State {
	s := stateOf(members, firstRound, rounds, verificationPercent)
	s.Config.RetryLost = true
	for i := range s.Epoch.Rounds {
		s.Epoch.Rounds[i].Position += 100
	}
	newest := &s.Epoch.Rounds[rounds-1]
	newest.Retries = lost
	s.Progress.DataIndex, s.Progress.Step = newest.NextData(), newest.Step
	s.Position = newest.NextPosition()
	return s
}

// request returns a request for some of a list of intervals.
func request(intervals []assign.BatchID) message.Request {
	return message.Request{Number: 1, Kind: message.Samples, Sequences: intervals}
}

// TestLostSequencesAreGranted compares grants with the owner of every sequence of a round with lost sequences.
func TestLostSequencesAreGranted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.IntRange(1, 8).Draw(t, "members")
		var lost []coordinator.Stretch
		for start, left := uint64(0), uint64(6); left > 0 && rapid.Bool().Draw(t, "more"); {
			start += rapid.Uint64Range(0, 3).Draw(t, "gap")
			n := rapid.Uint64Range(1, left).Draw(t, "length")
			lost = append(lost, coordinator.Stretch{Start: start, End: start + n, Tries: 1})
			start, left = start+n, left-n
		}
		s := withLost(members, 10, 1, 0, lost...)
		r := newRun()
		r.follow(s, [32]byte{1})
		round := &s.Epoch.Rounds[0]
		owner, assigned := map[uint64]int{}, round.Assignments(s.Config)
		for _, a := range assigned {
			for _, part := range round.Sequences(a.Batch) {
				for index := part.Start; index < part.End; index++ {
					owner[index] = a.Member
				}
			}
		}
		if len(owner) != 12 {
			t.Fatalf("the round has %d sequences", len(owner))
		}
		for _, a := range assigned {
			whole := round.Sequences(a.Batch)
			if d := r.grant(round.Members[a.Member], request(whole)); d.refused != nil || d.others {
				t.Fatalf("member %d, %v: %+v", a.Member, whole, d)
			}
			if d := r.grant(member((a.Member+1)%members), request(whole)); members > 1 && (code(d) != message.NotAssigned || d.wait == nil) {
				t.Fatalf("%v for a different member: %+v", whole, d)
			}
			if d := r.grant(round.Members[a.Member], request([]assign.BatchID{a.Batch})); code(d) != message.NotAssigned {
				t.Fatalf("the positions %v: %+v", a.Batch, d)
			}
		}
		client := rapid.IntRange(0, members-1).Draw(t, "client")
		start := rapid.Uint64Range(0, s.Progress.DataIndex+2).Draw(t, "start")
		end := start + rapid.Uint64Range(1, 4).Draw(t, "length")
		own := true
		for index := start; index < end; index++ {
			of, ok := owner[index]
			own = own && ok && of == client
		}
		split := slices.ContainsFunc(lost, func(t coordinator.Stretch) bool { return start < t.End && t.End < end })
		if got := r.grant(member(client), request([]assign.BatchID{{Start: start, End: end}})).refused == nil; got && !own || own && !split && !got {
			t.Fatalf("[%d,%d) for member %d granted: %v, own: %v", start, end, client, got, own)
		}
	})
}

// TestLostSequencesAreAudited requests the lost sequences of past rounds, also from a server that has not seen them.
func TestLostSequencesAreAudited(t *testing.T) {
	lost := []coordinator.Stretch{{Start: 3, End: 5, Tries: 1}, {Start: 9, End: 10, Tries: 2}}
	both := request([]assign.BatchID{{Start: 3, End: 5}, {Start: 9, End: 10}})
	at := func(first int) *coordinator.State {
		s := audited(4, first, 4)
		s.Config.RetryLost = true
		for i := range s.Epoch.Rounds {
			if s.Epoch.Rounds[i].Step == 151 {
				s.Epoch.Rounds[i].Retries = lost
			}
		}
		return s
	}
	r := newRun()
	for first := range 200 {
		r.follow(at(first), [32]byte{1})
	}
	if d := r.grant(member(0), both); d.refused != nil || !d.others {
		t.Errorf("lost sequences of a past round: %+v", d.refused)
	}
	if d := r.grant(member(0), request([]assign.BatchID{{Start: 3, End: 6}})); code(d) != message.NotAssigned {
		t.Errorf("more sequences: %+v", d.refused)
	}
	for first := 200; first < 230; first++ {
		r.follow(at(first), [32]byte{1})
	}
	if d := r.grant(member(0), both); code(d) != message.NotAssigned {
		t.Errorf("lost sequences of an old round: %+v", d.refused)
	}
	r = newRun()
	r.follow(at(229), [32]byte{1})
	if d := r.grant(member(0), both); d.refused != nil || !d.others {
		t.Errorf("lost sequences, after a restart: %+v", d.refused)
	}
}
