package serve

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data/remote/message"
)

func member(n int) coordinator.ClientID { return coordinator.ClientID{byte(n), byte(n >> 8), 1} }

// stateOf returns a run with the given members in its newest rounds, of 12 sequences each.
func stateOf(members, firstRound, rounds, verificationPercent int) *coordinator.State {
	s := &coordinator.State{RunID: "run"}
	s.Config.VerificationPercent = uint8(verificationPercent)
	var ids []coordinator.ClientID
	for n := range members {
		s.Epoch.Clients = append(s.Epoch.Clients, coordinator.Client{ID: member(n)})
		ids = append(ids, member(n))
	}
	for i := firstRound; i < firstRound+rounds; i++ {
		s.Epoch.Rounds = append(s.Epoch.Rounds, coordinator.Round{
			Step: uint32(i + 1), Seed: uint64(77 * i), DataIndex: uint64(12 * i), Position: uint64(12 * i), BatchSize: 12, Members: ids,
		})
		s.Progress.DataIndex = uint64(12 * (i + 1))
	}
	return s
}

// owned returns a member's batch of a round of the state.
func owned(s *coordinator.State, round, n int) assign.BatchID {
	for _, a := range s.Epoch.Rounds[round].Assignments(s.Config) {
		if s.Epoch.Rounds[round].Members[a.Member] == member(n) {
			return a.Batch
		}
	}
	return assign.BatchID{}
}

func samples(id assign.BatchID) message.Request {
	return message.Request{Number: 1, Kind: message.Samples, Sequences: []assign.BatchID{id}}
}

func TestGrant(t *testing.T) {
	s := stateOf(3, 10, 4, 0)
	s.Pending = []coordinator.Client{{ID: member(8)}}
	s.Epoch.Clients[2].State = coordinator.Dropped
	gone := owned(stateOf(3, 9, 4, 0), 0, 0)
	next := owned(stateOf(3, 11, 4, 0), 3, 0)
	own, other := owned(s, 3, 0), owned(s, 3, 1)
	r := newRun()
	r.follow(s, [32]byte{1})
	hash := func(index uint64) message.Request {
		return message.Request{Kind: message.Fingerprint, Sequences: []assign.BatchID{{Start: index, End: index + 1}}}
	}
	for _, test := range []struct {
		name    string
		client  int
		request message.Request
		want    message.Code // 0: granted
		waits   bool
	}{
		{"own batch", 0, samples(own), 0, false},
		{"again", 0, samples(own), 0, false},
		{"part of it", 0, samples(assign.BatchID{Start: own.Start, End: own.Start + 1}), 0, false},
		{"of the round before", 0, samples(owned(s, 2, 0)), 0, false},
		{"of the oldest round", 0, samples(owned(s, 0, 0)), 0, false},
		{"of a round before that", 0, samples(gone), message.NotAssigned, false},
		{"of the next round", 0, samples(next), message.NotAssigned, true},
		{"another's", 0, samples(other), message.NotAssigned, other.End > s.Progress.DataIndex},
		{"one too many", 0, samples(assign.BatchID{Start: own.Start, End: own.End + 1}), message.NotAssigned, own.End+1 > s.Progress.DataIndex},
		{"one before", 0, samples(assign.BatchID{Start: own.Start - 1, End: own.End}), message.NotAssigned, false},
		{"everything", 0, samples(assign.BatchID{Start: 0, End: 1 << 40}), message.NotAssigned, true},
		{"a dropped member's own", 2, samples(owned(s, 3, 2)), message.NotMember, true},
		{"a pending client", 8, samples(own), message.NotMember, true},
		{"a stranger", 9, samples(own), message.NotMember, true},
		{"a stranger's fingerprint", 9, hash(0), message.NotMember, true},
		{"a fingerprint", 1, hash(0), 0, false},
		{"the newest fingerprint", 1, hash(s.Progress.DataIndex - 1), 0, false},
		{"a fingerprint too early", 1, hash(s.Progress.DataIndex), message.NotTrained, true},
	} {
		d := r.grant(member(test.client), test.request)
		if d.refused == nil && test.want != 0 || d.refused != nil && d.refused.Code != test.want || (d.wait != nil) != test.waits {
			t.Errorf("%s: %+v, waits %v", test.name, d.refused, d.wait != nil)
		}
	}
	for n, want := range map[int]bool{0: true, 2: false, 8: true, 9: false} {
		if r.isPart(member(n)) != want {
			t.Errorf("member %d is part of the run: %v", n, !want)
		}
	}
}

// TestNextRoundIsRead requests the batch of the next round, as clients do that read ahead.
func TestNextRoundIsRead(t *testing.T) {
	s := stateOf(3, 10, 4, 0)
	s.RunState, s.Progress.Step, s.Position = coordinator.RoundTrain, 14, s.Progress.DataIndex
	s.Config.MinClients, s.Config.RoundsPerEpoch, s.Config.TotalSteps = 1, 1000, 1000
	s.Config.GlobalBatchSizeStart, s.Config.GlobalBatchSizeEnd = 12, 12
	s.Model.MaxSeqLen = 1
	next, follows := s.NextRound()
	if !follows {
		t.Fatal("no round follows")
	}
	batches := make(map[int]assign.BatchID)
	for _, a := range next.Assignments(s.Config) {
		batches[a.Member] = a.Batch
	}
	r := newRun()
	r.follow(s, [32]byte{1})
	for n, batch := range batches {
		if d := r.grant(member(n), samples(batch)); d.refused != nil {
			t.Errorf("member %d requests its next batch %v: %v", n, batch, d.refused)
		}
		if d := r.grant(member((n+1)%3), samples(batch)); d.refused == nil || d.wait == nil {
			t.Errorf("the next batch of member %d for a different member: %+v", n, d)
		}
	}
	if len(batches) != 3 {
		t.Fatalf("the next round has batches %v", batches)
	}
	s.Epoch.Clients[0].State = coordinator.Dropped // the other members share the next round
	r.follow(s, [32]byte{1})
	if d := r.grant(member(0), samples(batches[0])); d.refused == nil {
		t.Error("a dropped member gets its former batch")
	}
	again, _ := s.NextRound()
	for _, a := range again.Assignments(s.Config) {
		owner := member(a.Member + 1) // member 0 has left
		if d := r.grant(owner, samples(a.Batch)); d.refused != nil {
			t.Errorf("of two members, %v: %v", a.Batch, d.refused)
		}
	}
	s.RunState = coordinator.Cooldown
	r.follow(s, [32]byte{1})
	if d := r.grant(member(1), samples(batches[1])); d.refused == nil {
		t.Error("in Cooldown, before the next round is known")
	}
}

// TestVerifiersGetNothingYet sends requests of members without a batch in the running round.
func TestVerifiersGetNothingYet(t *testing.T) {
	s := stateOf(4, 0, 1, 50)
	r := newRun()
	r.follow(s, [32]byte{1})
	without := 0
	for n := range 4 {
		if own := owned(s, 0, n); own.Len() > 0 {
			continue
		}
		without++
		for start := range uint64(12) {
			if r.grant(member(n), samples(assign.BatchID{Start: start, End: start + 1})).refused == nil {
				t.Errorf("verifier %d got sequence %d", n, start)
			}
		}
	}
	if without != 2 {
		t.Fatalf("%d members have no batch, want 2", without)
	}
}

// TestDeliveriesAreBounded requests the same batch again and again, across a change of rounds.
func TestDeliveriesAreBounded(t *testing.T) {
	s := stateOf(3, 0, 2, 0)
	r := newRun()
	r.follow(s, [32]byte{1})
	own := owned(s, 1, 0)
	granted := 0
	for range 3 * maxDeliveries {
		if d := r.grant(member(0), samples(own)); d.refused == nil {
			granted++
		} else if d.refused.Code != message.Repeated || d.wait != nil {
			t.Fatalf("refused: %+v", d.refused)
		}
		r.follow(s, [32]byte{1})
	}
	if granted != maxDeliveries {
		t.Errorf("delivered %d times, want %d", granted, maxDeliveries)
	}
	if r.grant(member(0), samples(owned(s, 0, 0))).refused != nil || r.grant(member(1), samples(owned(s, 1, 1))).refused != nil {
		t.Error("a different batch also counts")
	}
	r.follow(stateOf(3, 6, 2, 0), [32]byte{1})
	if len(r.delivered) != 0 {
		t.Errorf("%d deliveries of past rounds are remembered", len(r.delivered))
	}
}

// TestGrantProperty compares grants with the owner of every sequence.
func TestGrantProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.IntRange(1, 12).Draw(t, "members")
		first := rapid.IntRange(0, 20).Draw(t, "first round")
		s := stateOf(members, first, rapid.IntRange(1, 4).Draw(t, "rounds"), rapid.IntRange(0, 100).Draw(t, "verifiers"))
		owner := make(map[uint64]coordinator.ClientID)
		for i := range s.Epoch.Rounds {
			for _, a := range s.Epoch.Rounds[i].Assignments(s.Config) {
				for index := a.Batch.Start; index < a.Batch.End; index++ {
					owner[index] = s.Epoch.Rounds[i].Members[a.Member]
				}
			}
		}
		r := newRun()
		r.follow(s, [32]byte{1})
		client := member(rapid.IntRange(0, members).Draw(t, "client"))
		low := uint64(12 * max(0, first-1))
		start := rapid.Uint64Range(low, s.Progress.DataIndex+2).Draw(t, "start")
		end := start + rapid.Uint64Range(1, 14).Draw(t, "length")
		own := true
		for index := start; index < end; index++ {
			own = own && owner[index] == client
		}
		// A member that owns several rounds in a row sends a separate request for each.
		own = own && (end-1)/12 == start/12
		if got := r.grant(client, samples(assign.BatchID{Start: start, End: end})).refused == nil; got != own {
			t.Fatalf("[%d,%d) granted: %v", start, end, got)
		}
	})
}
