package tally

import (
	"errors"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/core/merkle"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/wire"
)

// openTally begins the tally of clienttest.Round, or of a similar round.
func openTally(round coordinator.Round) *Tally {
	return New(round, 1, round.Assignments(clienttest.Config(3)))
}

func TestReceivedAnnouncements(t *testing.T) {
	round := clienttest.Round()
	tally := openTally(round)
	s := &tally.Slots[0]
	owner, other := identity.ID(s.Owner), identity.ID(tally.Slots[1].Owner)
	receive := func(author identity.ID, a wire.ResultAnnouncement) error {
		return tally.Receive(author, a, []byte{a.Blob[0]})
	}

	elsewhere := clienttest.Announcement(s.Batch, clienttest.Hash(1), [32]byte{})
	elsewhere.Batch = assign.BatchID{Start: s.Batch.Start, End: s.Batch.End + 1}
	for _, test := range []struct {
		subject string
		author  identity.ID
		a       wire.ResultAnnouncement
		want    error
	}{
		{"a batch of other bounds", owner, elsewhere, errUnknownBatch},
		{"another client's batch", other, clienttest.Announcement(s.Batch, clienttest.Hash(1), [32]byte{}), errNotAssignee},
		{"the first", owner, clienttest.Announcement(s.Batch, clienttest.Hash(1), [32]byte{}), nil},
		{"the same", owner, clienttest.Announcement(s.Batch, clienttest.Hash(1), [32]byte{}), ErrKnownResult},
		{"the second", owner, clienttest.Announcement(s.Batch, clienttest.Hash(2), [32]byte{}), ErrEquivocation},
		{"the third", owner, clienttest.Announcement(s.Batch, clienttest.Hash(3), [32]byte{}), errTooManyBefore},
	} {
		if err := receive(test.author, test.a); !errors.Is(err, test.want) || (test.want == nil) != (err == nil) {
			t.Errorf("%s: got %v; want error %v and (test.want == nil) == (err == nil)", test.subject, err, test.want)
		}
	}
	// The third is accepted once witnesses hold it.
	list := make([]Commitment, len(tally.Slots))
	list[0] = clienttest.Hash(3)
	owners := clienttest.Owners(round)
	tally.Round.Witnesses = clienttest.Proofs(round.Seed, owners, list, list)
	if err := receive(owner, clienttest.Announcement(s.Batch, clienttest.Hash(3), [32]byte{})); !errors.Is(err, errTooManyBefore) {
		t.Errorf("before the round is final: %v", err)
	}
	tally.Final = true
	if err := receive(owner, clienttest.Announcement(s.Batch, clienttest.Hash(3), [32]byte{})); !errors.Is(err, ErrEquivocation) {
		t.Errorf("in a final round: %v", err)
	}
	if o := tally.Decide(); len(o.Counted) != 1 || o.Counted[0].Commitment != clienttest.Hash(3) || o.Missing != 1 || len(o.Lost) != 2 {
		t.Errorf("outcome %+v", o)
	}
	s.Candidates[2].State = Held
	if o := tally.Decide(); o.Missing != 0 || o.Sources[0] != s.Candidates[2] {
		t.Errorf("outcome %+v", o)
	}
}

// TestVotesDecideWhichResultsAreReceived checks a trainer that sends a different result to each witness and to this
// client. The client knows that none of them counts only after it has received the announcements of
// the witnesses' results.
func TestVotesDecideWhichResultsAreReceived(t *testing.T) {
	round := clienttest.Round()
	tally := openTally(round)
	s := &tally.Slots[0]
	owner := identity.ID(s.Owner)
	owners := clienttest.Owners(round)
	only := func(c Commitment) []Commitment {
		return append([]Commitment{c}, make([]Commitment, len(tally.Slots)-1)...)
	}
	for _, c := range []Commitment{clienttest.Hash(1), clienttest.Hash(2)} {
		_ = tally.Receive(owner, clienttest.Announcement(s.Batch, c, [32]byte{}), nil)
	}
	tally.Round.Witnesses = clienttest.Proofs(round.Seed, owners, only(clienttest.Hash(3)), only(clienttest.Hash(4)), only(clienttest.Hash(5)))
	tally.Final = true
	if o := tally.Decide(); o.Missing != 1 {
		t.Fatalf("before the witnesses' results are known: %+v", o)
	}
	for _, c := range []Commitment{clienttest.Hash(3), clienttest.Hash(4), clienttest.Hash(5)} {
		if err := tally.Receive(owner, clienttest.Announcement(s.Batch, c, [32]byte{}), nil); !errors.Is(err, ErrEquivocation) {
			t.Errorf("a result that a witness holds: %v", err)
		}
	}
	if err := tally.Receive(owner, clienttest.Announcement(s.Batch, clienttest.Hash(6), [32]byte{}), nil); !errors.Is(err, errTooManyBefore) {
		t.Errorf("a result that no witness holds: %v", err)
	}
	if o := tally.Decide(); o.Missing != 0 || len(o.Counted) != 0 || len(o.Lost) != len(tally.Slots) {
		t.Errorf("outcome %+v", o)
	}
}

// TestHiddenResult checks a trainer that fills the slots for results of its batch with results for
// which Byzantine witnesses vote, before the client receives the honest witnesses' results. The client
// must still accept them.
func TestHiddenResult(t *testing.T) {
	for name, held := range map[string]int{"one counts": 1, "each witness holds a different one": 7} {
		t.Run(name, func(t *testing.T) {
			round := clienttest.Round()
			round.WitnessesElected, round.WitnessesNeeded = 10, 7
			tally := openTally(round)
			s := &tally.Slots[0]
			owners := clienttest.Owners(round)
			var lists [][]Commitment
			for k := range 7 {
				list := make([]Commitment, len(tally.Slots))
				list[0] = clienttest.Numbered(2, 0, k%held)
				lists = append(lists, list)
			}
			tally.Round.Witnesses = clienttest.Proofs(round.Seed, owners, append(lists, make([][]Commitment, 3)...)...)
			garbage := make([]Commitment, 60)
			for i := range garbage {
				garbage[i] = clienttest.Numbered(3, 0, i)
				for k := 7; k < 10; k++ {
					tally.Round.Witnesses[k].Commitments.Add(round.Seed, garbage[i][:])
				}
			}
			receive := func(c Commitment) error {
				return tally.Receive(identity.ID(s.Owner), clienttest.Announcement(s.Batch, c, [32]byte{}), nil)
			}
			for _, c := range garbage[:2] {
				_ = receive(c)
			}
			tally.Final = true
			for _, c := range garbage[2:] {
				_ = receive(c)
			}
			if want := MaxCandidates + 10; len(s.Candidates) != want || !errors.Is(receive(garbage[59]), errTooManyBefore) {
				t.Fatalf("%d results are kept, want %d", len(s.Candidates), want)
			}
			for k := range held {
				if err := receive(lists[k][0]); err != nil { // it displaces a different one
					t.Errorf("a result of an honest witness: %v", err)
				}
			}
			for _, c := range garbage {
				_ = receive(c)
			}
			for k := range held {
				if !slices.ContainsFunc(s.Candidates, func(c *Candidate) bool { return c.Commitment == lists[k][0] }) {
					t.Error("a result of an honest witness was displaced")
				}
			}
			if len(s.Candidates) != MaxCandidates+10 || len(tally.displaced) < held {
				t.Errorf("%d results are kept, %d displaced", len(s.Candidates), len(tally.displaced))
			}
			o := tally.Decide()
			if counts := held == 1; counts && (len(o.Counted) != 1 || o.Counted[0].Commitment != lists[0][0]) || !counts && (len(o.Counted) > 0 || o.Missing > 0) {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// TestHeldResultsAreNotDisplaced checks that a result that this client proved is not displaced,
// even if the client then holds a lower result, or other results have the vote of a witness.
func TestHeldResultsAreNotDisplaced(t *testing.T) {
	round := clienttest.Round()
	round.WitnessesElected = 1
	tally := openTally(round)
	tally.Begin([32]byte{1})
	s := &tally.Slots[0]
	receive := func(c Commitment) error {
		return tally.Receive(identity.ID(s.Owner), clienttest.Announcement(s.Batch, c, [32]byte{1}), nil)
	}
	_, _ = receive(clienttest.Hash(2)), receive(clienttest.Hash(1))
	s.Candidates[0].State = Held
	if proof, _ := tally.Witness(); proof.CommitmentsRoot != merkle.Root(append([][32]byte{clienttest.Hash(2)}, make([][32]byte, len(tally.Slots)-1)...)) {
		t.Fatal("a different result is proved")
	}
	s.Candidates[1].State = Held
	tally.Final = true
	tally.Round.Witnesses = make([]coordinator.Witness, 1)
	for n := byte(3); n < 6; n++ {
		c := clienttest.Hash(n)
		tally.Round.Witnesses[0].CommitmentsRoot = merkle.Root([][32]byte{c})
		tally.Round.Witnesses[0].Commitments = bloom.Filter{}
		tally.Round.Witnesses[0].Commitments.Add(round.Seed, c[:])
		var want error
		if n == 3 { // there is a free place, which the other results take
			want = ErrEquivocation
		}
		if err := receive(c); !errors.Is(err, want) {
			t.Fatal(err)
		}
		s.Candidates[2].State = Held // too late to be proved
	}
	if s.Candidates[0].Commitment != clienttest.Hash(2) || s.Candidates[1].Commitment != clienttest.Hash(1) || len(s.Candidates) != 3 || len(tally.displaced) != 2 {
		t.Errorf("%d results are kept, %d displaced", len(s.Candidates), len(tally.displaced))
	}
}
