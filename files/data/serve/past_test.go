package serve

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data/remote/message"
)

// audited is stateOf for a run with audits. Its newest round is the running round.
func audited(members, firstRound, rounds int) *coordinator.State {
	s := stateOf(members, firstRound, rounds, 25)
	s.Progress.Step = uint32(firstRound + rounds)
	return s
}

// ofRound returns a request for the first sequences of a round.
func ofRound(i int) message.Request {
	return samples(assign.BatchID{Start: uint64(12 * i), End: uint64(12*i + 4)})
}

// code returns the code of a decision; 0 means granted.
func code(d decision) message.Code {
	if d.refused == nil {
		return 0
	}
	return d.refused.Code
}

// TestAuditorsGetPastRounds requests batches of other trainers.
func TestAuditorsGetPastRounds(t *testing.T) {
	r := newRun()
	for first := 0; first < 100; first++ {
		r.follow(audited(4, first, 4), [32]byte{1})
	}
	s := audited(4, 100, 4) // rounds 100 to 102 are over, 103 runs
	s.Pending = []coordinator.Client{{ID: member(8)}}
	s.Epoch.Clients[1].State = coordinator.Dropped
	s.Epoch.Clients[2].State = coordinator.Ejected
	s.Trials = []coordinator.Trial{{Step: 31}} // of round 30
	for range 2 {                              // the same state may arrive twice
		r.follow(s, [32]byte{1})
	}
	trainers := 0
	for n := range 4 {
		trainers += int(min(owned(s, 2, n).Len(), 1))
	}
	if trainers != 3 {
		t.Fatalf("%d of 4 members train", trainers)
	}
	for _, test := range []struct {
		name    string
		client  int
		request message.Request
		want    message.Code
		waits   bool
	}{
		{"a batch of another", 0, samples(owned(s, 2, 3)), 0, false},
		{"an old round", 0, ofRound(60), 0, false},
		{"the oldest", 0, ofRound(102 - 63), 0, false},
		{"too old", 0, ofRound(102 - 64), message.NotAssigned, false},
		{"partly too old", 0, samples(assign.BatchID{Start: 12*39 - 1, End: 12*39 + 3}), message.NotAssigned, false},
		{"of a trial", 0, ofRound(30), 0, false},
		{"of the round after that", 0, ofRound(31), message.NotAssigned, false},
		{"of a dropped member", 1, ofRound(60), 0, false},
		{"of an ejected member", 2, ofRound(60), message.NotMember, true},
		{"of a pending client", 8, ofRound(60), message.NotMember, true},
		{"of a stranger", 9, ofRound(60), message.NotMember, true},
		{"another's of the running round", 0, samples(otherOf(s, 3, 0)), message.NotAssigned, true},
		{"of the next round", 0, ofRound(104), message.NotAssigned, true},
		{"everything", 0, samples(assign.BatchID{Start: 0, End: 1 << 60}), message.NotAssigned, true},
		{"all of it at once", 0, samples(assign.BatchID{Start: 12 * 40, End: 12 * 100}), message.Repeated, false},
	} {
		d := r.grant(member(test.client), test.request)
		if code(d) != test.want || (d.wait != nil) != test.waits || test.want == 0 && !d.others {
			t.Errorf("%s: %+v, waits %v, others %v", test.name, d.refused, d.wait != nil, d.others)
		}
	}
	if !r.isPart(member(1)) || r.isPart(member(2)) {
		t.Error("a dropped member may audit, an ejected member may not")
	}
	quiet := stateOf(4, 100, 4, 0)
	quiet.Progress.Step = 104
	r.follow(quiet, [32]byte{1})
	if d := r.grant(member(0), ofRound(101)); code(d) != message.NotAssigned && d.others {
		t.Error("a run without audits serves other members' batches")
	}
}

// otherOf returns the batch of a member other than n, in a round of the state.
func otherOf(s *coordinator.State, round, n int) assign.BatchID {
	for other := range s.Epoch.Rounds[round].Members {
		if batch := owned(s, round, other); other != n && batch.Len() > 0 {
			return batch
		}
	}
	return assign.BatchID{}
}

// TestOpenTrialsKeepTheirRounds has a trial that outlasts the newest rounds.
func TestOpenTrialsKeepTheirRounds(t *testing.T) {
	r := newRun()
	for first := range 200 {
		s := audited(4, first, 4)
		if first >= 20 {
			s.Trials = []coordinator.Trial{{Step: 21}} // of round 20
		}
		r.follow(s, [32]byte{1})
	}
	if d := r.grant(member(0), ofRound(20)); d.refused != nil {
		t.Errorf("the round of the trial: %v", d.refused)
	}
	if d := r.grant(member(0), ofRound(21)); d.refused == nil {
		t.Error("the round after that")
	}
	if n := len(r.past.notes); n != pastRounds+1 {
		t.Errorf("%d rounds are recorded, want %d", n, pastRounds+1)
	}
	r.follow(audited(4, 200, 4), [32]byte{1})
	if n := len(r.past.notes); n != pastRounds {
		t.Errorf("%d rounds are recorded after the trial, want %d", n, pastRounds)
	}
}

// TestServerThatStartsKnowsPastRounds requests rounds that are older than the rounds in a new
// server's first state.
func TestServerThatStartsKnowsPastRounds(t *testing.T) {
	r := newRun()
	s := audited(4, 100, 4)
	s.Trials = []coordinator.Trial{{Step: 21}}
	r.follow(s, [32]byte{1})
	for round, want := range map[int]message.Code{102: 0, 60: 0, 102 - 63: 0, 102 - 64: message.NotAssigned, 20: 0, 21: message.NotAssigned} {
		if d := r.grant(member(0), ofRound(round)); code(d) != want {
			t.Errorf("round %d: %+v", round, d.refused)
		}
	}
}

// TestAuditsAreBounded has one member that requests all available batches of other members.
func TestAuditsAreBounded(t *testing.T) {
	r := newRun()
	for first := range 50 {
		r.follow(audited(4, first, 4), [32]byte{1})
	}
	had := func() (sequences int) {
		for round := range 52 {
			for start := uint64(12 * round); start < uint64(12*(round+1)); start++ {
				if d := r.grant(member(0), samples(assign.BatchID{Start: start, End: start + 1})); d.others {
					sequences++
				}
			}
		}
		return sequences
	}
	if n := had(); n != 12*maxShare {
		t.Errorf("had %d sequences at once, want %d", n, 12*maxShare)
	}
	r.follow(audited(4, 50, 4), [32]byte{1})
	if n := had(); n != 12*sharePerRound {
		t.Errorf("got %d sequences after one more round, want %d", n, 12*sharePerRound)
	}
}

// TestPastIsBounded has members that come and go.
func TestPastIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRun()
		first := 0
		for range rapid.IntRange(1, 60).Draw(t, "states") {
			first += rapid.IntRange(0, 70).Draw(t, "rounds on")
			s := audited(4, first, rapid.IntRange(1, 4).Draw(t, "rounds"))
			shift := first / 10 * 4
			for i := range s.Epoch.Rounds {
				ids := make([]coordinator.ClientID, 4)
				for n := range ids {
					ids[n] = member(shift + n)
					s.Epoch.Clients[n].ID = ids[n]
				}
				s.Epoch.Rounds[i].Members = ids
			}
			r.follow(s, [32]byte{1})
			if len(r.past.notes) > pastRounds || len(r.past.readers) > 4*pastRounds {
				t.Fatalf("%d rounds and %d members are remembered", len(r.past.notes), len(r.past.readers))
			}
			running := uint64(12 * int(s.Progress.Step-1))
			for start := range running + 24 {
				d := r.grant(member(shift), samples(assign.BatchID{Start: start, End: start + 1}))
				if d.others && start >= running {
					t.Fatalf("got sequence %d of a different member, but round %d begins at %d", start, s.Progress.Step, running)
				}
			}
		}
	})
}

// TestAssigneesGoFirst checks that auditors wait for assigned members, but not forever.
func TestAssigneesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p precedence
		took := func() time.Duration {
			begun := time.Now()
			p.yield(t.Context(), time.Second)
			return time.Since(begun)
		}
		if d := took(); d != 0 {
			t.Errorf("waited %v although no connection remains", d)
		}
		leave := p.enter()
		if d := took(); d != time.Second {
			t.Errorf("waited %v, the connection remains", d)
		}
		second := p.enter()
		time.AfterFunc(100*time.Millisecond, leave)
		time.AfterFunc(300*time.Millisecond, second)
		if d := took(); d != 300*time.Millisecond {
			t.Errorf("waited %v for the last of two", d)
		}
		if d := took(); d != 0 {
			t.Errorf("waited %v afterwards", d)
		}
	})
}
