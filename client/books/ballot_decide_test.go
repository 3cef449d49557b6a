package client

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/merkle"
	"pgregory.net/rapid"
)

// hash is a commitment that a test can name.
func hash(n byte) commitment { return commitment{n, 0xee} }

// proofs describes what witnesses hold: per witness one commitment per batch, zero for
// none.
func proofs(seed uint64, owners []coordinator.ClientID, lists ...[]commitment) []coordinator.Witness {
	var witnesses []coordinator.Witness
	for i, list := range lists {
		w := coordinator.Witness{Member: uint16(i), CommitmentsRoot: merkle.Root(list)}
		for j, c := range list {
			if c != (commitment{}) {
				w.Participants.Add(seed, owners[j][:])
				w.Commitments.Add(seed, c[:])
			}
		}
		witnesses = append(witnesses, w)
	}
	return witnesses
}

func owners(n int) []coordinator.ClientID {
	ids := make([]coordinator.ClientID, n)
	for i := range ids {
		ids[i] = coordinator.ClientID{byte(i + 1), 0xaa}
	}
	return ids
}

func TestDecide(t *testing.T) {
	const seed = 99
	none := commitment{}
	a, b, c, b2 := hash(1), hash(2), hash(3), hash(4)
	full := []commitment{a, b, c}
	ids := owners(3)
	blind := proofs(seed, ids, full, full, full)
	blind[1].Commitments = [40]uint64{} // the right root, an empty filter
	silent := proofs(seed, ids, full, full)
	for i := range silent {
		silent[i].Participants, silent[i].Commitments = [40]uint64{}, [40]uint64{}
	}
	blurred := proofs(seed, ids, full, full, []commitment{a, b2, c})
	blurred[1].Commitments = blurred[2].Commitments // the root of one result, the filter of the other
	// The last of four votes for a result whose trainer it does not hold anything of.
	split := proofs(seed, ids, full, []commitment{a, b2, c}, full, []commitment{a, none, c})
	split[3].Commitments.Add(seed, b[:])
	tests := map[string]struct {
		witnesses  []coordinator.Witness
		quorum     uint16
		candidates [][]commitment
		want       []commitment
		unknown    int
	}{
		"all agree":                {proofs(seed, ids, full, full, full), 2, [][]commitment{{a}, {b}, {c}}, full, 0},
		"one witness is enough of": {proofs(seed, ids, full), 1, [][]commitment{{a}, {b}, {c}}, full, 0},
		"too few witnesses":        {proofs(seed, ids, full), 2, [][]commitment{{a}, {b}, {c}}, []commitment{none, none, none}, 0},
		"no witnesses":             {nil, 0, [][]commitment{{a}, {b}, {c}}, []commitment{none, none, none}, 0},
		"a batch nobody trained": {
			proofs(seed, ids, []commitment{a, none, c}, []commitment{a, none, c}, []commitment{a, none, c}), 2,
			[][]commitment{{a}, nil, {c}}, []commitment{a, none, c}, 0,
		},
		"a batch that came too late for most": {
			proofs(seed, ids, []commitment{a, none, c}, []commitment{a, none, c}, full), 2,
			[][]commitment{{a}, {b}, {c}}, []commitment{a, none, c}, 0,
		},
		"no two witnesses hold the same": {
			proofs(seed, ids, []commitment{a, b, none}, []commitment{a, none, c}, []commitment{none, b, c}), 2,
			[][]commitment{{a}, {b}, {c}}, full, 0,
		},
		"missing here, root agreed": {
			proofs(seed, ids, full, full, full), 2,
			[][]commitment{{a}, nil, {c}}, []commitment{a, none, c}, 1,
		},
		"missing here, no root agreed": {
			proofs(seed, ids, full, []commitment{a, b, none}, []commitment{none, none, none}), 2,
			[][]commitment{{a}, nil, nil}, []commitment{a, none, none}, 1,
		},
		"two results, one has a quorum": {
			proofs(seed, ids, full, full, []commitment{a, b2, c}), 2,
			[][]commitment{{a}, {b2, b}, {c}}, full, 0,
		},
		"two results, none has a quorum": {
			proofs(seed, ids, full, []commitment{a, b2, c}, []commitment{a, none, c}), 2,
			[][]commitment{{a}, {b2, b}, {c}}, []commitment{a, none, c}, 0,
		},
		"two results, only the other one is known": {
			proofs(seed, ids, full, full, full), 2,
			[][]commitment{{a}, {b2}, {c}}, []commitment{a, none, c}, 1,
		},
		"filters say less than the root": {blind[:2], 2, [][]commitment{{a}, {b}, {c}}, full, 0},
		"two results, a filter lies about which": {
			blurred, 2, [][]commitment{{a}, {b2, b}, {c}}, full, 0,
		},
		"two results, filters of one witness contradict each other": {
			split, 3, [][]commitment{{a}, {b2, b}, {c}}, full, 0,
		},
		"two results, filters contradict each other, only the other one is known": {
			split, 3, [][]commitment{{a}, {b2}, {c}}, []commitment{a, none, c}, 1,
		},
		"filters say nothing, result unknown": {
			silent, 2, [][]commitment{{a}, {b}, nil}, []commitment{none, none, none}, 3,
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

// TestDecideIsIndependentOfOrder shuffles witnesses and candidates: neither may matter,
// and whoever knows everything knows that nothing is missing.
func TestDecideIsIndependentOfOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batches := rapid.IntRange(1, 6).Draw(t, "batches")
		witnesses := rapid.IntRange(1, 7).Draw(t, "witnesses")
		seed := rapid.Uint64().Draw(t, "seed")
		ids := owners(batches)
		known := make([][]commitment, batches)
		for i := range known {
			for j := range rapid.IntRange(0, 3).Draw(t, "results") {
				known[i] = append(known[i], hash(byte(10*i+j+1)))
			}
		}
		lists := make([][]commitment, witnesses)
		for i := range lists {
			lists[i] = make([]commitment, batches)
			for j := range lists[i] {
				if pick := rapid.IntRange(-1, len(known[j])-1).Draw(t, "pick"); pick >= 0 {
					lists[i][j] = known[j][pick]
				}
			}
		}
		round := coordinator.Round{Seed: seed, WitnessesNeeded: uint16(assign.Quorum(witnesses)), Witnesses: proofs(seed, ids, lists...)}
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
			t.Fatalf("got %x, want %x", got, want)
		}
		// Who knows less arrives at the same, or knows that it lacks something.
		for i := range known {
			if len(known[i]) > 0 {
				known[i] = known[i][1:]
			}
		}
		if got := (ballot{round: &round, owners: ids, candidates: known}).decide(); len(got.unknown) == 0 && fmt.Sprint(got.chosen) != fmt.Sprint(want.chosen) {
			t.Fatalf("with less known: got %x without a doubt, want %x", got.chosen, want.chosen)
		}
	})
}

// TestReplicaChain fixes the bytes of the chain.
func TestReplicaChain(t *testing.T) {
	r := startReplica([32]byte{1, 2, 3})
	if got := hex.EncodeToString(r[:]); got != wantStart {
		t.Errorf("start: got %s", got)
	}
	next := extendReplica(r, 7, []countedResult{{assign.BatchID{Start: 4, End: 8}, hash(1)}, {assign.BatchID{Start: 8, End: 12}, hash(2)}})
	if got := hex.EncodeToString(next[:]); got != wantNext {
		t.Errorf("next: got %s", got)
	}
	if extendReplica(r, 7, nil) == extendReplica(r, 8, nil) || extendReplica(r, 7, nil) == r {
		t.Error("a step without results leaves no trace")
	}
}

const (
	wantStart = "f198d69434abafd250abd0f73fa087b9187c0edba6038ee71377c1e0f8ac45fe"
	wantNext  = "59078973df068f7ae97ce33b29b728ab89a818ef4d7ad514de3bb68860d96f1f"
)

func TestInformed(t *testing.T) {
	const seed = 99
	a, b, c, b2, b3 := hash(1), hash(2), hash(3), hash(4), hash(5)
	none := commitment{}
	ids := owners(3)
	three := proofs(seed, ids, []commitment{a, b, c}, []commitment{a, b2, c}, []commitment{a, none, c}, []commitment{a, b3, c})
	tests := map[string]struct {
		witnesses  []coordinator.Witness
		candidates [][]commitment
		unknown    []int
		want       []uint16
	}{
		"who signed the root":                  {proofs(seed, ids, []commitment{a, b, c}, []commitment{a, none, c}, []commitment{a, b, c}), [][]commitment{{a}, nil, {c}}, []int{1}, []uint16{0, 2}},
		"who holds a result that is not known": {three, [][]commitment{{a}, {b}, {c}}, []int{1}, []uint16{1, 3}},
		"of several those that are not known":  {three, [][]commitment{{a}, {b, b2}, {c}}, []int{1}, []uint16{3}},
		"nobody who holds none":                {three, [][]commitment{{a}, {b, b2, b3}, {c}}, []int{1}, nil},
		"each once, however many batches":      {three, [][]commitment{nil, {b}, nil}, []int{0, 1, 2}, []uint16{0, 1, 2, 3}},
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
