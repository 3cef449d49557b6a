package tally

import (
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
)

// TestFalseFiltersDoNotUseUpTheGuesses checks that witnesses whose filters allow too many lists to
// try do not prevent the client from finding the lists of other witnesses.
func TestFalseFiltersDoNotUseUpTheGuesses(t *testing.T) {
	const seed, batches = 10, 10 // enough batches for the first witness to use up all attempts
	ids := owners(batches)
	list := make([]Commitment, batches)
	known := make([][]Commitment, batches)
	for i := range list {
		list[i] = clienttest.Hash(byte(i + 1))
		known[i] = []Commitment{list[i], clienttest.Hash(byte(i + 100))}
	}
	swapped := slices.Clone(list)
	swapped[3], swapped[4] = known[3][1], known[4][1]
	round := coordinator.Round{Seed: seed, WitnessesElected: 4, WitnessesNeeded: 3, Witnesses: clienttest.Proofs(seed, ids, list, list, list, swapped)}
	full, last := &round.Witnesses[0], &round.Witnesses[3]
	for i := range known {
		full.Commitments.Add(seed, known[i][1][:])
	}
	full.CommitmentsRoot = Commitment{1}
	last.Commitments.Add(seed, list[3][:])
	last.Commitments.Add(seed, list[4][:])
	lists := ballot{&round, ids, known, only(list)}.tally().lists(func(*coordinator.Witness) bool { return true })
	if lists[0] != nil || !slices.Equal(lists[1], list) || !slices.Equal(lists[3], swapped) {
		t.Errorf("lists %x", lists)
	}
}

// TestKnownListLeavesNothingUnknown checks filters that contain the owner of a batch by error. A
// client that knows a witness's list knows that the witness holds nothing else.
func TestKnownListLeavesNothingUnknown(t *testing.T) {
	const seed = 12
	ids := owners(3)
	a, b, none := clienttest.Hash(1), clienttest.Hash(2), Commitment{}
	round := coordinator.Round{Seed: seed, WitnessesElected: 4, WitnessesNeeded: 3,
		Witnesses: clienttest.Proofs(seed, ids, []Commitment{a, none, none}, []Commitment{a, none, none}, []Commitment{a, none, b}, []Commitment{a, none, b})}
	for k := range round.Witnesses {
		round.Witnesses[k].Participants.Add(seed, ids[1][:])
	}
	v := ballot{round: &round, owners: ids, candidates: [][]Commitment{{a}, nil, {b}}}.decide()
	if v.chosen[0] != a || len(v.unknown) > 0 {
		t.Errorf("chosen %x, unknown %v", v.chosen, v.unknown)
	}
	v = ballot{round: &round, owners: ids, candidates: [][]Commitment{nil, nil, {b}}}.decide()
	if !slices.Equal(v.unknown, []int{0, 1}) {
		t.Errorf("neither the result nor a list is known: unknown %v", v.unknown)
	}
}

// crowdedRound returns the tally of a finished round whose witnesses have these lists. The results
// of the first list are announced and held.
func crowdedRound(seed uint64, lists [][]Commitment) *Tally {
	tally := &Tally{Final: true, Slots: make([]Slot, len(lists[0]))}
	ids := manyOwners(len(tally.Slots))
	tally.Round = coordinator.Round{Seed: seed, WitnessesElected: uint16(len(lists)), WitnessesNeeded: uint16(assign.Quorum(len(lists)))}
	tally.Round.Witnesses = clienttest.Proofs(seed, ids, lists...)
	for i := range tally.Slots {
		batch := uint64(i)
		tally.Slots[i] = Slot{Batch: assign.BatchID{Start: batch, End: batch + 1}, Owner: ids[i]}
		if c := lists[0][i]; c != (Commitment{}) {
			tally.Slots[i].Candidates = []*Candidate{{Commitment: c, State: Held}}
		}
	}
	tally.Begin([32]byte{})
	return tally
}

// fullList returns a list with a result of every batch.
func fullList(batches int) []Commitment {
	list := make([]Commitment, batches)
	for i := range list {
		list[i] = clienttest.Numbered(2, i, 0)
	}
	return list
}

// TestForgedBesideAnotherHeldResult checks forged commitments of trainers that also make the
// client's proof differ from the witnesses' proofs. The client received a different, lower result
// in time, or a result that claims a different replica, but it also holds the witnesses' results.
func TestForgedBesideAnotherHeldResult(t *testing.T) {
	const seed, batches, witnesses, hostile = 13, 128, 4, 7
	list := fullList(batches)
	for name, deceive := range map[string]func(s *Slot, i int){
		"it got a lower result": func(s *Slot, i int) {
			lower := Commitment{1, byte(i)}
			s.Candidates = append([]*Candidate{{Commitment: lower, State: Held}}, s.Candidates...)
		},
		"its result claims another replica": func(s *Slot, _ int) { s.Candidates[0].Replica = [32]byte{1} },
	} {
		t.Run(name, func(t *testing.T) {
			tally := crowdedRound(seed, [][]Commitment{list, list, list, list}[:witnesses])
			for i := range hostile {
				deceive(&tally.Slots[i], i)
				c := forge(t, seed, uint64(i), filtersOf(tally.Round.Witnesses)...)
				tally.Slots[i].Candidates = append([]*Candidate{{Commitment: c}}, tally.Slots[i].Candidates...)
			}
			o := tally.Decide()
			if o.Missing > 0 || len(o.Counted) != batches {
				t.Fatalf("%d results are missing, %d count; open: %v", o.Missing, len(o.Counted), o.open)
			}
			for i, c := range o.Counted {
				if c.Commitment != list[i] {
					t.Errorf("batch %d: a different result counts", i)
				}
			}
		})
	}
}

// TestForgedWhereFewWitnessesHoldTheResult checks hostile trainers that send their results so late
// that no result reaches a quorum of witnesses. These trainers also forge commitments that all filters
// contain. A witness that does not list a trainer does not vote for its forged commitment, so nothing
// is missing. A client without the late results is unsure what the witnesses hold. It fetches the
// results, and then it is sure.
func TestForgedWhereFewWitnessesHoldTheResult(t *testing.T) {
	const seed, batches, witnesses, hostile, tooLate = 14, 192, 32, 8, 3
	list := fullList(batches)
	var lacks []uint // for each witness, the hostile trainers whose results come too late
	for set := range uint(1) << hostile {
		if bits.OnesCount(set) == tooLate {
			lacks = append(lacks, set)
		}
	}
	lists := make([][]Commitment, witnesses)
	for k := range lists {
		lists[k] = slices.Clone(list)
		for i := range hostile {
			if lacks[33*k%len(lacks)]>>i&1 == 1 {
				lists[k][i] = Commitment{}
			}
		}
	}
	tally := crowdedRound(seed, lists)
	for i := range tally.Slots {
		tally.Slots[i].Candidates = []*Candidate{{Commitment: list[i], State: Held}}
	}
	var late []*Candidate
	for i := range hostile {
		c := &Candidate{Commitment: list[i]}
		late = append(late, c)
		forged := forge(t, seed, uint64(i), filtersOf(tally.Round.Witnesses)...)
		tally.Slots[i].Candidates = []*Candidate{{Commitment: forged}, c}
		tally.unfetched += 2
	}
	for i := range hostile {
		if votes := tally.Round.Votes(list[i]); votes >= int(tally.Round.WitnessesNeeded) {
			t.Fatalf("%d witnesses hold a late result", votes)
		}
	}
	if o := tally.Judge(time.Time{}, true); o.Missing > 0 || !o.Unsure {
		t.Fatalf("%d results are missing; unsure: %t", o.Missing, o.Unsure)
	}
	wanted := fetchable(tally)
	for i, c := range late {
		if !slices.Contains(wanted, c) {
			t.Fatalf("the late result of batch %d is not fetched", i)
		}
		tally.Hold(&tally.Slots[i], c, 1)
	}
	o := tally.Judge(time.Time{}, true)
	if o.Missing > 0 || o.Unsure || len(o.Counted) != batches-hostile {
		t.Errorf("%d results are missing, %d count; unsure: %t", o.Missing, len(o.Counted), o.Unsure)
	}
	if rest := fetchable(tally); len(rest) > 0 {
		t.Errorf("%d results are fetched although nothing is missing", len(rest))
	}
}

// fetchable returns the results of a round that package fetch would fetch: known, not held, and
// possibly useful.
func fetchable(t *Tally) (found []*Candidate) {
	need := t.Needs()
	t.each(func(s *Slot, c *Candidate) {
		if c.State == Announced && need(s, c) != Useless {
			found = append(found, c)
		}
	})
	return found
}
