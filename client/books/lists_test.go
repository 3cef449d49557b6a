package client

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
)

// crowdedRound returns the books of a finished round of so many batches with the witnesses
// that the lists describe. Of each batch what the first list has was announced, and is held.
func crowdedRound(seed uint64, lists [][]commitment) *results {
	r := &results{final: true, slots: make([]slot, len(lists[0]))}
	ids := manyOwners(len(r.slots))
	r.round = coordinator.Round{Seed: seed, WitnessesElected: uint16(len(lists)), WitnessesNeeded: uint16(assign.Quorum(len(lists)))}
	r.round.Witnesses = proofs(seed, ids, lists...)
	for i := range r.slots {
		batch := uint64(i)
		r.slots[i] = slot{batch: assign.BatchID{Start: batch, End: batch + 1}, owner: ids[i]}
		if c := lists[0][i]; c != (commitment{}) {
			r.slots[i].candidates = []*candidate{{commitment: c, state: held}}
		}
	}
	r.begin([32]byte{})
	return r
}

// fullList returns a list with a result of every batch.
func fullList(batches int) []commitment {
	list := make([]commitment, batches)
	for i := range list {
		list[i] = numbered(2, i, 0)
	}
	return list
}

// TestForgedBesideAnotherHeldResult: trainers forge commitments, and see to it that what
// the client would have proved is not what the witnesses did, although it holds that too:
// the client got another, lower result in time, or theirs said to be of another replica.
func TestForgedBesideAnotherHeldResult(t *testing.T) {
	const seed, batches, witnesses, hostile = 13, 128, 4, 7
	list := fullList(batches)
	for name, deceive := range map[string]func(s *slot, i int){
		"it got a lower result": func(s *slot, i int) {
			lower := commitment{1, byte(i)}
			s.candidates = append([]*candidate{{commitment: lower, state: held}}, s.candidates...)
		},
		"it was told another replica": func(s *slot, _ int) { s.candidates[0].replica = [32]byte{1} },
	} {
		t.Run(name, func(t *testing.T) {
			r := crowdedRound(seed, [][]commitment{list, list, list, list}[:witnesses])
			for i := range hostile {
				deceive(&r.slots[i], i)
				c := forge(t, seed, uint64(i), filtersOf(r.round.Witnesses)...)
				r.slots[i].candidates = append([]*candidate{{commitment: c}}, r.slots[i].candidates...)
			}
			o := r.decide()
			if o.missing > 0 || len(o.counted) != batches {
				t.Fatalf("%d results are missing, %d count; open: %v", o.missing, len(o.counted), o.open)
			}
			for i, c := range o.counted {
				if c.commitment != list[i] {
					t.Errorf("batch %d: another result counts", i)
				}
			}
		})
	}
}

// TestForgedWhereFewWitnessesHoldTheResult: hostile trainers send their results so late that
// each witness holds others of them, none has a quorum, and forge commitments that all
// filters contain. A client that lacks the results fetches them, and then nothing is missing.
func TestForgedWhereFewWitnessesHoldTheResult(t *testing.T) {
	const seed, batches, witnesses, hostile, tooLate = 14, 192, 32, 8, 3
	list := fullList(batches)
	var lacks []uint // per witness, the hostile trainers whose results come too late
	for set := range uint(1) << hostile {
		if bits.OnesCount(set) == tooLate {
			lacks = append(lacks, set)
		}
	}
	lists := make([][]commitment, witnesses)
	for k := range lists {
		lists[k] = slices.Clone(list)
		for i := range hostile {
			if lacks[33*k%len(lacks)]>>i&1 == 1 {
				lists[k][i] = commitment{}
			}
		}
	}
	n, l, _ := roundNode(commitment{})
	step := l.round.Step
	l.results = crowdedRound(seed, lists)
	l.round.Step = step
	for i := range l.slots {
		l.slots[i].candidates = []*candidate{{commitment: list[i], state: held}}
	}
	var late []*candidate
	for i := range hostile {
		c := &candidate{commitment: list[i]}
		late = append(late, c)
		forged := forge(t, seed, uint64(i), filtersOf(l.round.Witnesses)...)
		l.slots[i].candidates = []*candidate{{commitment: forged}, c}
		l.unfetched += 2
	}
	for i := range hostile {
		if votes := l.round.Votes(list[i]); votes >= int(l.round.WitnessesNeeded) {
			t.Fatalf("%d witnesses hold a late result", votes)
		}
	}
	if o := n.judge(l, true); o.missing == 0 {
		t.Fatal("the client does not even need what it lacks")
	}
	wanted := make(map[*candidate]bool)
	for _, w := range n.wanted() {
		wanted[w.candidate] = true
	}
	for i, c := range late {
		if !wanted[c] {
			t.Fatalf("the late result of batch %d is not fetched", i)
		}
		n.fetched(l, &l.slots[i], c, []byte("x"), nil, nil)
	}
	o := n.judge(l, true)
	if o.missing > 0 || len(o.counted) != batches-hostile {
		t.Errorf("%d results are missing, %d count", o.missing, len(o.counted))
	}
	if rest := n.wanted(); len(rest) > 0 {
		t.Errorf("%d results are fetched though nothing is missing", len(rest))
	}
}
