package tally

import (
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
)

// TestWitnessesThatHideTheOwnerDoNotFork checks rounds in which 1 of 3, 3 of 8 or 3 of 9 witnesses
// are Byzantine. The trainer of batch 1 is Byzantine too, and sends its result to few honest members
// only. The Byzantine witnesses have the result in their filters, but do not list its owner. Some of
// them sign the honest list, so that it can be found. A client that knows the result and a client that does not
// must not both be sure of different outcomes.
func TestWitnessesThatHideTheOwnerDoNotFork(t *testing.T) {
	const seed = 99
	a, b, c := clienttest.Hash(1), clienttest.Hash(2), clienttest.Hash(3)
	none := Commitment{}
	ids := owners(3)
	for _, test := range []struct{ informed, honest, maxFaulty, quorum, listed int }{{1, 1, 1, 2, 0}, {3, 2, 3, 6, 2}, {3, 3, 3, 6, 0}} {
		var lists [][]Commitment
		for range test.informed {
			lists = append(lists, []Commitment{a, b, c})
		}
		for range test.honest + test.maxFaulty {
			lists = append(lists, []Commitment{a, none, c})
		}
		witnesses := clienttest.Proofs(seed, ids, lists...)
		for i := range test.maxFaulty {
			w := &witnesses[len(witnesses)-1-i]
			w.Commitments.Add(seed, b[:])
			if i >= test.listed {
				w.CommitmentsRoot = [32]byte{6, byte(i)}
			}
		}
		round := coordinator.Round{Seed: seed, WitnessesElected: uint16(len(witnesses)), WitnessesNeeded: uint16(test.quorum), Witnesses: witnesses}
		knows := ballot{round: &round, owners: ids, candidates: [][]Commitment{{a}, {b}, {c}}}.decide()
		lacks := ballot{round: &round, owners: ids, candidates: [][]Commitment{{a}, nil, {c}}}.decide()
		if len(knows.unknown)+len(lacks.unknown)+len(knows.unread)+len(lacks.unread) == 0 && fmt.Sprint(knows.chosen) != fmt.Sprint(lacks.chosen) {
			t.Errorf("%+v: two honest clients are sure of different outcomes: %x and %x", test, knows.chosen[1][:2], lacks.chosen[1][:2])
		}
	}
}

// TestOutvoted checks the replicas that the members of a finished round signed. This client's
// replica is 1.
func TestOutvoted(t *testing.T) {
	ids := owners(12)
	tests := map[string]struct {
		seats     int
		trainers  []byte // the trainers' replicas; 0: silent
		witnesses map[uint16]byte
		running   bool
		want      bool
	}{
		"all agree":                             {12, []byte{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, nil, false, false},
		"a third and one more, and most":        {12, []byte{1, 2, 2, 2, 2}, nil, false, true},
		"a third":                               {12, []byte{1, 2, 2, 2}, nil, false, false},
		"as many as the others":                 {12, []byte{1, 1, 1, 1, 2, 2, 2, 2}, nil, false, false},
		"others, but of two replicas":           {12, []byte{1, 2, 2, 2, 3, 3, 3}, nil, false, false},
		"witnesses count":                       {12, []byte{1, 2, 2}, map[uint16]byte{8: 2, 9: 2}, false, true},
		"no member counts twice":                {12, []byte{1, 2, 2, 2}, map[uint16]byte{1: 2, 2: 2, 3: 2}, false, false},
		"a committee of few":                    {12, nil, map[uint16]byte{0: 2, 1: 2, 2: 2}, false, false},
		"the round runs":                        {12, []byte{1, 2, 2, 2, 2}, nil, true, false},
		"three members, two have another model": {3, []byte{1, 2, 2}, nil, false, true},
		"two members":                           {2, []byte{1, 2}, nil, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tallied := &Tally{Round: coordinator.Round{Members: ids}, Began: true, Final: !test.running, Replica: [32]byte{1}}
			for i, replica := range test.trainers {
				slot := Slot{Owner: ids[i]}
				if replica != 0 {
					slot.Candidates = []*Candidate{{Replica: [32]byte{replica}}}
				}
				tallied.Slots = append(tallied.Slots, slot)
			}
			for member, replica := range test.witnesses {
				tallied.Round.Witnesses = append(tallied.Round.Witnesses, coordinator.Witness{Member: member, Replica: [32]byte{replica}})
			}
			if got := tallied.Outvoted(test.seats); got != test.want {
				t.Errorf("outvoted: %t, want %t", got, test.want)
			}
		})
	}
}
