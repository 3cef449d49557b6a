package tally

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"pgregory.net/rapid"
)

func owners(n int) []coordinator.ClientID {
	ids := make([]coordinator.ClientID, n)
	for i := range ids {
		ids[i] = coordinator.ClientID{byte(i + 1), 0xaa}
	}
	return ids
}

func TestDecide(t *testing.T) {
	const seed = 99
	none := Commitment{}
	a, b, c, b2 := clienttest.Hash(1), clienttest.Hash(2), clienttest.Hash(3), clienttest.Hash(4)
	full := []Commitment{a, b, c}
	ids := owners(3)
	blind := clienttest.Proofs(seed, ids, full, full, full)
	blind[1].Commitments = [40]uint64{} // the right root with an empty filter
	silent := clienttest.Proofs(seed, ids, full, full)
	for i := range silent {
		silent[i].Participants, silent[i].Commitments = [40]uint64{}, [40]uint64{}
	}
	blurred := clienttest.Proofs(seed, ids, full, full, []Commitment{a, b2, c})
	blurred[1].Commitments = blurred[2].Commitments // the root of one result with the filter of the other
	// The last of four witnesses votes for a result although it holds nothing of its trainer.
	split := clienttest.Proofs(seed, ids, full, []Commitment{a, b2, c}, full, []Commitment{a, none, c})
	split[3].Commitments.Add(seed, b[:])
	tests := map[string]struct {
		witnesses  []coordinator.Witness
		quorum     uint16
		candidates [][]Commitment
		want       []Commitment
		unknown    int
	}{
		"all agree":             {clienttest.Proofs(seed, ids, full, full, full), 2, [][]Commitment{{a}, {b}, {c}}, full, 0},
		"one witness is enough": {clienttest.Proofs(seed, ids, full), 1, [][]Commitment{{a}, {b}, {c}}, full, 0},
		"too few witnesses":     {clienttest.Proofs(seed, ids, full), 2, [][]Commitment{{a}, {b}, {c}}, []Commitment{none, none, none}, 0},
		"no witnesses":          {nil, 0, [][]Commitment{{a}, {b}, {c}}, []Commitment{none, none, none}, 0},
		"a batch nobody trained": {
			clienttest.Proofs(seed, ids, []Commitment{a, none, c}, []Commitment{a, none, c}, []Commitment{a, none, c}), 2,
			[][]Commitment{{a}, nil, {c}}, []Commitment{a, none, c}, 0,
		},
		"a batch that came too late for most": {
			clienttest.Proofs(seed, ids, []Commitment{a, none, c}, []Commitment{a, none, c}, full), 2,
			[][]Commitment{{a}, {b}, {c}}, []Commitment{a, none, c}, 0,
		},
		"no two witnesses hold the same": {
			clienttest.Proofs(seed, ids, []Commitment{a, b, none}, []Commitment{a, none, c}, []Commitment{none, b, c}), 2,
			[][]Commitment{{a}, {b}, {c}}, full, 0,
		},
		"missing here, root agreed": {
			clienttest.Proofs(seed, ids, full, full, full), 2,
			[][]Commitment{{a}, nil, {c}}, []Commitment{a, none, c}, 1,
		},
		"missing here, no root agreed": {
			clienttest.Proofs(seed, ids, full, []Commitment{a, b, none}, []Commitment{none, none, none}), 2,
			[][]Commitment{{a}, nil, nil}, []Commitment{a, none, none}, 1,
		},
		"two results, one has a quorum": {
			clienttest.Proofs(seed, ids, full, full, []Commitment{a, b2, c}), 2,
			[][]Commitment{{a}, {b2, b}, {c}}, full, 0,
		},
		"two results, none has a quorum": {
			clienttest.Proofs(seed, ids, full, []Commitment{a, b2, c}, []Commitment{a, none, c}), 2,
			[][]Commitment{{a}, {b2, b}, {c}}, []Commitment{a, none, c}, 0,
		},
		"two results, only the other one is known": {
			clienttest.Proofs(seed, ids, full, full, full), 2,
			[][]Commitment{{a}, {b2}, {c}}, []Commitment{a, none, c}, 1,
		},
		"filters say less than the root": {blind[:2], 2, [][]Commitment{{a}, {b}, {c}}, full, 0},
		"two results, a filter is false about which": {
			blurred, 2, [][]Commitment{{a}, {b2, b}, {c}}, full, 0,
		},
		"two results, one witness holds one of an owner that it does not name: no vote": {
			split, 3, [][]Commitment{{a}, {b2, b}, {c}}, []Commitment{a, none, c}, 0,
		},
		"two results, filters contradict each other, only the other one is known": {
			split, 3, [][]Commitment{{a}, {b2}, {c}}, []Commitment{a, none, c}, 1,
		},
		"filters say nothing, result unknown": {
			silent, 2, [][]Commitment{{a}, {b}, nil}, []Commitment{none, none, none}, 3,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			round := coordinator.Round{Seed: seed, WitnessesNeeded: test.quorum, Witnesses: test.witnesses}
			got := ballot{round: &round, owners: ids, candidates: test.candidates}.decide()
			if fmt.Sprint(got.chosen) != fmt.Sprint(test.want) || len(got.unknown) != test.unknown {
				t.Errorf("got %x unknown %v, want %x and %d unknown", got.chosen, got.unknown, test.want, test.unknown)
			}
		})
	}
}

// TestDecideIsIndependentOfOrder checks that the order of witnesses and candidates does not matter,
// and that a client that knows all results knows that none is missing.
func TestDecideIsIndependentOfOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batches := rapid.IntRange(1, 6).Draw(t, "batches")
		witnesses := rapid.IntRange(1, 7).Draw(t, "witnesses")
		seed := rapid.Uint64().Draw(t, "seed")
		ids := owners(batches)
		known := make([][]Commitment, batches)
		for i := range known {
			for j := range rapid.IntRange(0, 3).Draw(t, "results") {
				known[i] = append(known[i], clienttest.Hash(byte(10*i+j+1)))
			}
		}
		lists := make([][]Commitment, witnesses)
		for i := range lists {
			lists[i] = make([]Commitment, batches)
			for j := range lists[i] {
				if pick := rapid.IntRange(-1, len(known[j])-1).Draw(t, "pick"); pick >= 0 {
					lists[i][j] = known[j][pick]
				}
			}
		}
		round := coordinator.Round{Seed: seed, WitnessesNeeded: uint16(assign.Quorum(witnesses)), Witnesses: clienttest.Proofs(seed, ids, lists...)}
		want := ballot{round: &round, owners: ids, candidates: known}.decide()
		if len(want.unknown) != 0 {
			t.Fatalf("unknown %v although everything is known", want.unknown)
		}
		shuffle := rand.New(rand.NewPCG(seed, 1))
		for i := range known {
			shuffle.Shuffle(len(known[i]), func(a, b int) { known[i][a], known[i][b] = known[i][b], known[i][a] })
		}
		shuffle.Shuffle(len(round.Witnesses), func(a, b int) {
			round.Witnesses[a], round.Witnesses[b] = round.Witnesses[b], round.Witnesses[a]
		})
		if got := (ballot{round: &round, owners: ids, candidates: known}).decide(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		// A client that knows less reaches the same decision, or knows that something is missing.
		for i := range known {
			if len(known[i]) > 0 {
				known[i] = known[i][1:]
			}
		}
		if got := (ballot{round: &round, owners: ids, candidates: known}).decide(); len(got.unknown) == 0 && fmt.Sprint(got.chosen) != fmt.Sprint(want.chosen) {
			t.Fatalf("with fewer known results: got %x without a doubt, want %x", got.chosen, want.chosen)
		}
	})
}

func TestInformed(t *testing.T) {
	const seed = 99
	a, b, c, b2, b3 := clienttest.Hash(1), clienttest.Hash(2), clienttest.Hash(3), clienttest.Hash(4), clienttest.Hash(5)
	none := Commitment{}
	ids := owners(3)
	three := clienttest.Proofs(seed, ids, []Commitment{a, b, c}, []Commitment{a, b2, c}, []Commitment{a, none, c}, []Commitment{a, b3, c})
	tests := map[string]struct {
		witnesses  []coordinator.Witness
		candidates [][]Commitment
		unknown    []int
		want       []uint16
	}{
		"witnesses that signed the root":        {clienttest.Proofs(seed, ids, []Commitment{a, b, c}, []Commitment{a, none, c}, []Commitment{a, b, c}), [][]Commitment{{a}, nil, {c}}, []int{1}, []uint16{0, 2}},
		"witnesses that hold an unknown result": {three, [][]Commitment{{a}, {b}, {c}}, []int{1}, []uint16{1, 3}},
		"of several those that are not known":   {three, [][]Commitment{{a}, {b, b2}, {c}}, []int{1}, []uint16{3}},
		"no witness without a result":           {three, [][]Commitment{{a}, {b, b2, b3}, {c}}, []int{1}, nil},
		"each once, however many batches":       {three, [][]Commitment{nil, {b}, nil}, []int{0, 1, 2}, []uint16{0, 1, 2, 3}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			round := coordinator.Round{Seed: seed, Witnesses: test.witnesses, WitnessesElected: 3, WitnessesNeeded: 2}
			if got := (ballot{round: &round, owners: ids, candidates: test.candidates}).informed(test.unknown); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
