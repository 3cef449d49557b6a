package tally

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"pgregory.net/rapid"
)

// hostileRound is a round of honest and Byzantine witnesses with all results that were announced for
// it.
type hostileRound struct {
	round  coordinator.Round
	ids    []coordinator.ClientID
	known  [][]Commitment
	real   [][]Commitment // known results with a blob
	honest [][]Commitment // lists of the honest witnesses

	hostile int // number of hostile trainers
}

const (
	hostileBatches = 200
	maxSearched    = 4 // with more hostile trainers, clients hold all their results, because a search takes too long
)

// drawHostileRound draws a round. The trainers of the first batches are hostile: they send several
// results, each to some of the witnesses, and forge commitments that pass filters.
func drawHostileRound(t *rapid.T) hostileRound {
	elected := rapid.IntRange(1, 10).Draw(t, "elected")
	maxFaulty := rapid.IntRange(0, (elected-1)/3).Draw(t, "liars")
	silent := rapid.IntRange(0, elected-assign.Quorum(elected)).Draw(t, "silent")
	hostile := rapid.IntRange(0, 2*maxSearched).Draw(t, "hostile trainers")
	hidden := rapid.Bool().Draw(t, "lower results that no witness has")
	seed := rapid.Uint64().Draw(t, "seed")
	h := hostileRound{hostile: hostile, ids: manyOwners(hostileBatches), known: make([][]Commitment, hostileBatches), real: make([][]Commitment, hostileBatches)}
	for i := range h.known {
		results := 1
		if i < hostile && !hidden {
			results = rapid.IntRange(0, 2).Draw(t, "results")
		}
		for j := range results {
			h.real[i] = append(h.real[i], clienttest.Numbered(2, i, j))
		}
		if i < hostile && hidden {
			h.real[i] = append(h.real[i], Commitment{1, byte(i)})
		}
		h.known[i] = slices.Clone(h.real[i])
	}
	late := rapid.IntRange(0, hostileBatches-1).Draw(t, "late")
	count := max(elected-maxFaulty-silent, 0)
	for range count {
		list := make([]Commitment, hostileBatches)
		for i, results := range h.real {
			switch {
			case i == late && rapid.Bool().Draw(t, "too late"):
			case len(results) == 1 && i >= hostile, hidden && i < hostile:
				list[i] = results[0]
			case len(results) > 0:
				if pick := rapid.IntRange(-1, len(results)-1).Draw(t, "pick"); pick >= 0 {
					list[i] = results[pick]
				}
			}
		}
		h.honest = append(h.honest, list)
	}
	h.round = coordinator.Round{Seed: seed, WitnessesElected: uint16(elected), WitnessesNeeded: uint16(assign.Quorum(elected))}
	h.round.Witnesses = clienttest.Proofs(seed, h.ids, h.honest...)
	for i := range hostile {
		if count > 0 && (hidden || rapid.Bool().Draw(t, "forge")) {
			some := rapid.IntRange(1, count).Draw(t, "deceived")
			h.known[i] = append(h.known[i], forge(t, seed, uint64(i), filtersOf(h.round.Witnesses[:some])...))
		}
	}
	for range maxFaulty {
		h.addByzantine(t, hostile)
	}
	for k := range h.round.Witnesses {
		h.round.Witnesses[k].Member = uint16(k)
	}
	return h
}

// addByzantine adds a Byzantine witness. It has a separate list or the root of a different witness, and a filter
// that contains its list, nothing, or more.
func (h *hostileRound) addByzantine(t *rapid.T, hostile int) {
	list := make([]Commitment, hostileBatches)
	if len(h.honest) > 0 {
		list = slices.Clone(h.honest[rapid.IntRange(0, len(h.honest)-1).Draw(t, "whose list")])
	}
	for i := range hostile {
		if n := len(h.known[i]); n > 0 && rapid.Bool().Draw(t, "other result") {
			list[i] = h.known[i][rapid.IntRange(0, n-1).Draw(t, "which")]
		}
	}
	w := clienttest.Proofs(h.round.Seed, h.ids, list)[0]
	switch rapid.IntRange(0, 3).Draw(t, "root") {
	case 0:
		w.CommitmentsRoot = Commitment{1}
	case 1:
		if len(h.round.Witnesses) > 0 {
			w.CommitmentsRoot = h.round.Witnesses[0].CommitmentsRoot
		}
	}
	switch rapid.IntRange(0, 3).Draw(t, "filter") {
	case 0:
		w.Commitments = bloom.Filter{}
	case 1:
		w.Participants, w.Commitments = bloom.Filter{}, bloom.Filter{}
	case 2:
		for i := range hostile {
			for _, c := range h.known[i] {
				w.Commitments.Add(h.round.Seed, c[:])
			}
		}
	}
	h.round.Witnesses = append(h.round.Witnesses, w)
}

// clientOf returns the ballot of an honest client that knows all announcements in a random order
// and holds one result of nearly every batch. If many trainers are hostile, it holds all their
// results with a blob, including lower results that no witness holds, like a client that fetched
// the witnesses' results after the round.
func (h hostileRound) clientOf(t *rapid.T) ballot {
	order := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
	b := ballot{round: &h.round, owners: h.ids, candidates: make([][]Commitment, len(h.known)), held: make([][]Commitment, len(h.known))}
	all := h.hostile > maxSearched || rapid.Bool().Draw(t, "holds all")
	lacks := rapid.IntRange(0, hostileBatches-1).Draw(t, "lacks")
	for i, known := range h.known {
		b.candidates[i] = slices.Clone(known)
		order.Shuffle(len(known), func(x, y int) {
			b.candidates[i][x], b.candidates[i][y] = b.candidates[i][y], b.candidates[i][x]
		})
		switch n := len(h.real[i]); {
		case n > 0 && all:
			b.held[i] = h.real[i]
		case n > 0 && i != lacks:
			b.held[i] = []Commitment{h.real[i][order.IntN(n)]}
		}
	}
	return b
}

// TestHonestClientsDecideAlike checks that clients that know everything choose the same results if
// more than two thirds of the elected witnesses are honest. An honest witness holds each chosen
// result, and every result that a quorum of honest witnesses holds is chosen.
func TestHonestClientsDecideAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHostileRound(t)
		first := h.clientOf(t).decide()
		if len(first.unknown) > 0 {
			t.Fatalf("batches %v are unknown although everything is known", first.unknown)
		}
		if second := h.clientOf(t).decide(); fmt.Sprint(second) != fmt.Sprint(first) {
			t.Fatal("two clients that know everything choose different results")
		}
		for i, c := range first.chosen {
			holders := make(map[Commitment]int)
			for _, list := range h.honest {
				holders[list[i]]++
			}
			if c != (Commitment{}) && holders[c] == 0 {
				t.Errorf("batch %d: no honest witness has the chosen result", i)
			}
			for _, other := range h.real[i] {
				if holders[other] >= int(h.round.WitnessesNeeded) && c != other {
					t.Errorf("batch %d: a quorum of honest witnesses holds a different result", i)
				}
			}
		}
	})
}
