package client

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/bloom"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/merkle"
	"pgregory.net/rapid"
)

// numbered returns distinct values that do not begin with zeros.
func numbered(kind byte, batch, number int) (c commitment) {
	c = sha256.Sum256(fmt.Appendf(nil, "%d %d %d", kind, batch, number))
	c[0] = 0x80 | kind
	return c
}

// manyOwners returns the owners of so many batches that filters are full enough for a
// commitment that passes them to be found soon.
func manyOwners(n int) []coordinator.ClientID {
	ids := make([]coordinator.ClientID, n)
	for i := range ids {
		ids[i] = coordinator.ClientID(numbered(1, i, 0))
	}
	return ids
}

// forge searches for a low commitment that all filters contain, as a trainer can that
// needs no blob for it.
func forge(t interface{ Skip(args ...any) }, seed, salt uint64, filters ...*bloom.Filter) commitment {
	keys := bloom.NewKeys(seed)
	for number := range uint64(1) << 18 {
		c := commitment{0, 0xff}
		binary.BigEndian.PutUint64(c[2:], salt)
		binary.BigEndian.PutUint64(c[10:], number)
		positions := keys.Positions(c[:])
		if !slices.ContainsFunc(filters, func(f *bloom.Filter) bool { return !f.ContainsPositions(positions) }) {
			return c
		}
	}
	t.Skip("no commitment passes the filters")
	return commitment{}
}

// filtersOf returns the filters of commitments of witnesses.
func filtersOf(witnesses []coordinator.Witness) []*bloom.Filter {
	filters := make([]*bloom.Filter, len(witnesses))
	for k := range witnesses {
		filters[k] = &witnesses[k].Commitments
	}
	return filters
}

// only returns what a client holds that holds one result of each batch, or none.
func only(list []commitment) [][]commitment {
	held := make([][]commitment, len(list))
	for i, c := range list {
		if c != (commitment{}) {
			held[i] = []commitment{c}
		}
	}
	return held
}

// TestForgedCommitment: one trainer sends two results, so that no root has a quorum, and
// others announce, beside their results, commitments of nothing that are lower and that
// all filters contain.
func TestForgedCommitment(t *testing.T) {
	const seed, batches, witnesses, forged = 7, 200, 8, 20
	ids := manyOwners(batches)
	list := make([]commitment, batches)
	known := make([][]commitment, batches)
	for i := range list {
		list[i] = numbered(2, i, 0)
		known[i] = []commitment{list[i]}
	}
	second := numbered(3, 0, 1)
	known[0] = append(known[0], second)
	other := slices.Clone(list)
	other[0] = second
	lists := make([][]commitment, witnesses)
	for k := range lists {
		lists[k] = [][]commitment{list, other}[k%2]
	}
	round := coordinator.Round{Seed: seed, WitnessesElected: witnesses, WitnessesNeeded: uint16(assign.Quorum(witnesses))}
	round.Witnesses = proofs(seed, ids, lists...)
	want := slices.Clone(list)
	want[0] = commitment{} // has no quorum
	for i := 1; i <= forged; i++ {
		known[i] = append(known[i], forge(t, seed, uint64(i), filtersOf(round.Witnesses)...))
	}
	for name, held := range map[string][]commitment{"holds one": list, "holds the other": other} {
		v := ballot{&round, ids, known, only(held)}.decide()
		if !slices.Equal(v.chosen, want) || len(v.unknown) > 0 {
			t.Errorf("who %s: forged commitments count, or %v are unknown", name, v.unknown)
		}
	}
	// Who holds nothing yet has to try what the filters allow. That is possible for a few.
	for i := 6; i <= forged; i++ {
		known[i] = known[i][:1]
	}
	held := slices.Clone(list)
	for i := range 6 {
		held[i] = commitment{}
	}
	if v := (ballot{&round, ids, known, only(held)}).decide(); !slices.Equal(v.chosen, want) {
		t.Error("who lacks some results is deceived")
	}
}

// TestForgedCommitmentWithoutAResult: the forged commitment is the only one of its batch.
func TestForgedCommitmentWithoutAResult(t *testing.T) {
	const seed, batches = 8, 200
	ids := manyOwners(batches)
	list := make([]commitment, batches)
	known := make([][]commitment, batches)
	for i := range list {
		list[i] = numbered(2, i, 0)
		known[i] = []commitment{list[i]}
	}
	second := numbered(3, 0, 1)
	known[0] = append(known[0], second)
	list[1] = commitment{}
	other := slices.Clone(list)
	other[0] = second
	round := coordinator.Round{Seed: seed, WitnessesElected: 4, WitnessesNeeded: 3, Witnesses: proofs(seed, ids, list, other, list, other)}
	for _, owner := range []bool{false, true} {
		if owner { // their filters contain the owner by error too
			for k := range round.Witnesses {
				round.Witnesses[k].Participants.Add(seed, ids[1][:])
			}
		}
		known[1] = []commitment{forge(t, seed, 1, filtersOf(round.Witnesses)...)}
		want := slices.Clone(list)
		want[0] = commitment{}
		if v := (ballot{&round, ids, known, only(list)}).decide(); !slices.Equal(v.chosen, want) || len(v.unknown) > 0 {
			t.Errorf("owner named: %v: the forged commitment counts, or %v are unknown", owner, v.unknown)
		}
	}
}

// TestEmptyFilters: one honest witness is silent, and liars sign the root of the others
// with filters that contain only other results, also one of a batch of which nothing
// counts. The filters of the honest witnesses say everything.
func TestEmptyFilters(t *testing.T) {
	const seed, batches, liars = 9, 13, 4
	ids := owners(batches)
	list := make([]commitment, batches)
	known := make([][]commitment, batches)
	for i := range list {
		list[i] = hash(byte(i + 1))
		known[i] = []commitment{hash(byte(i + 100)), list[i]}
	}
	list[0] = commitment{}
	lists := make([][]commitment, 13-1)
	for k := range lists {
		lists[k] = list
	}
	round := coordinator.Round{Seed: seed, WitnessesElected: 13, WitnessesNeeded: 9, Witnesses: proofs(seed, ids, lists...)}
	for k := range liars {
		w := &round.Witnesses[k]
		w.Participants, w.Commitments = bloom.Filter{}, bloom.Filter{}
		for i := range known {
			w.Commitments.Add(seed, known[i][0][:])
		}
	}
	if v := (ballot{round: &round, owners: ids, candidates: known}).decide(); !slices.Equal(v.chosen, list) || len(v.unknown) > 0 {
		t.Errorf("chosen %x, unknown %v", v.chosen, v.unknown)
	}
}

// TestLiarsCannotUseUpTheGuesses: witnesses whose filters allow more lists than can be
// tried do not keep the others' from being found.
func TestLiarsCannotUseUpTheGuesses(t *testing.T) {
	const seed, batches = 10, 10 // so many that the first witness could use up all guesses
	ids := owners(batches)
	list := make([]commitment, batches)
	known := make([][]commitment, batches)
	for i := range list {
		list[i] = hash(byte(i + 1))
		known[i] = []commitment{list[i], hash(byte(i + 100))}
	}
	swapped := slices.Clone(list)
	swapped[3], swapped[4] = known[3][1], known[4][1]
	round := coordinator.Round{Seed: seed, WitnessesElected: 4, WitnessesNeeded: 3, Witnesses: proofs(seed, ids, list, list, list, swapped)}
	full, last := &round.Witnesses[0], &round.Witnesses[3]
	for i := range known {
		full.Commitments.Add(seed, known[i][1][:])
	}
	full.CommitmentsRoot = commitment{1}
	last.Commitments.Add(seed, list[3][:])
	last.Commitments.Add(seed, list[4][:])
	lists := ballot{&round, ids, known, only(list)}.tally().lists(func(*coordinator.Witness) bool { return true })
	if lists[0] != nil || !slices.Equal(lists[1], list) || !slices.Equal(lists[3], swapped) {
		t.Errorf("lists %x", lists)
	}
}

// TestWholeListLeavesNothingUnknown: filters name the owner of a batch by error. Whoever
// knows a witness's list knows that it holds nothing else.
func TestWholeListLeavesNothingUnknown(t *testing.T) {
	const seed = 12
	ids := owners(3)
	a, b, none := hash(1), hash(2), commitment{}
	round := coordinator.Round{Seed: seed, WitnessesElected: 4, WitnessesNeeded: 3,
		Witnesses: proofs(seed, ids, []commitment{a, none, none}, []commitment{a, none, none}, []commitment{a, none, b}, []commitment{a, none, b})}
	for k := range round.Witnesses {
		round.Witnesses[k].Participants.Add(seed, ids[1][:])
	}
	v := ballot{round: &round, owners: ids, candidates: [][]commitment{{a}, nil, {b}}}.decide()
	if v.chosen[0] != a || len(v.unknown) > 0 {
		t.Errorf("chosen %x, unknown %v", v.chosen, v.unknown)
	}
	v = ballot{round: &round, owners: ids, candidates: [][]commitment{nil, nil, {b}}}.decide()
	if !slices.Equal(v.unknown, []int{0, 1}) {
		t.Errorf("a result is not known, and no list: unknown %v", v.unknown)
	}
}

// TestFewDenialsAreNotBelieved: whether the list of a lying witness can be read depends on
// what a client has heard. It changes nothing.
func TestFewDenialsAreNotBelieved(t *testing.T) {
	const seed = 11
	ids := owners(2)
	c, other := hash(1), hash(2)
	none := commitment{}
	round := coordinator.Round{Seed: seed, WitnessesElected: 4, WitnessesNeeded: 3,
		Witnesses: proofs(seed, ids, []commitment{c, none}, []commitment{c, none}, []commitment{none, none}, []commitment{other, none})}
	round.Witnesses[3].Commitments.Add(seed, c[:])
	for _, known := range [][][]commitment{{{c}, nil}, {{c, other}, nil}} {
		if v := (ballot{&round, ids, known, only([]commitment{c, none})}).decide(); v.chosen[0] != c || len(v.unknown) > 0 {
			t.Errorf("with %d results known: %x, unknown %v", len(known[0]), v.chosen[0], v.unknown)
		}
	}
}

// hostileRound is a round of honest and lying witnesses with all results that were
// announced for it.
type hostileRound struct {
	round  coordinator.Round
	ids    []coordinator.ClientID
	known  [][]commitment
	real   [][]commitment // of known those with a blob
	honest [][]commitment // lists of the honest witnesses

	hostile int // trainers
}

const (
	hostileBatches = 200
	maxSearched    = 4 // hostile trainers whose results a client may hold others of than the witnesses
)

// drawHostileRound draws one. The first batches are those of trainers that lie: they send
// several results, each to some of the witnesses, and forge commitments that pass filters.
func drawHostileRound(t *rapid.T) hostileRound {
	elected := rapid.IntRange(1, 10).Draw(t, "elected")
	liars := rapid.IntRange(0, (elected-1)/3).Draw(t, "liars")
	silent := rapid.IntRange(0, elected-assign.Quorum(elected)).Draw(t, "silent")
	hostile := rapid.IntRange(0, 2*maxSearched).Draw(t, "hostile trainers")
	hidden := rapid.Bool().Draw(t, "lower results that no witness has")
	seed := rapid.Uint64().Draw(t, "seed")
	h := hostileRound{hostile: hostile, ids: manyOwners(hostileBatches), known: make([][]commitment, hostileBatches), real: make([][]commitment, hostileBatches)}
	for i := range h.known {
		results := 1
		if i < hostile && !hidden {
			results = rapid.IntRange(0, 2).Draw(t, "results")
		}
		for j := range results {
			h.real[i] = append(h.real[i], numbered(2, i, j))
		}
		if i < hostile && hidden {
			h.real[i] = append(h.real[i], commitment{1, byte(i)})
		}
		h.known[i] = slices.Clone(h.real[i])
	}
	late := rapid.IntRange(0, hostileBatches-1).Draw(t, "late")
	count := max(elected-liars-silent, 0)
	for range count {
		list := make([]commitment, hostileBatches)
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
	h.round.Witnesses = proofs(seed, h.ids, h.honest...)
	for i := range hostile {
		if count > 0 && (hidden || rapid.Bool().Draw(t, "forge")) {
			some := rapid.IntRange(1, count).Draw(t, "deceived")
			h.known[i] = append(h.known[i], forge(t, seed, uint64(i), filtersOf(h.round.Witnesses[:some])...))
		}
	}
	for range liars {
		h.lie(t, hostile)
	}
	for k := range h.round.Witnesses {
		h.round.Witnesses[k].Member = uint16(k)
	}
	return h
}

// lie adds a lying witness: with a list of its own or the root of another, and a filter
// that contains it, or nothing, or more.
func (h *hostileRound) lie(t *rapid.T, hostile int) {
	list := make([]commitment, hostileBatches)
	if len(h.honest) > 0 {
		list = slices.Clone(h.honest[rapid.IntRange(0, len(h.honest)-1).Draw(t, "whose list")])
	}
	for i := range hostile {
		if n := len(h.known[i]); n > 0 && rapid.Bool().Draw(t, "other result") {
			list[i] = h.known[i][rapid.IntRange(0, n-1).Draw(t, "which")]
		}
	}
	w := proofs(h.round.Seed, h.ids, list)[0]
	switch rapid.IntRange(0, 3).Draw(t, "root") {
	case 0:
		w.CommitmentsRoot = commitment{1}
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

// clientOf returns the ballot of an honest client that knows all that was announced, in an
// order of its own, and holds one of the results of nearly every batch. Where many trainers
// are hostile it holds all their results that have a blob, also those that no witness holds
// and that are lower, as one does that fetched what witnesses hold after the round.
func (h hostileRound) clientOf(t *rapid.T) ballot {
	order := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
	b := ballot{round: &h.round, owners: h.ids, candidates: make([][]commitment, len(h.known)), held: make([][]commitment, len(h.known))}
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
			b.held[i] = []commitment{h.real[i][order.IntN(n)]}
		}
	}
	return b
}

// TestHonestClientsDecideAlike: as long as more than two thirds of the elected witnesses
// do not lie, clients that know everything choose the same results, each held by an honest
// witness, and all that a quorum of honest witnesses holds.
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
			holders := make(map[commitment]int)
			for _, list := range h.honest {
				holders[list[i]]++
			}
			if c != (commitment{}) && holders[c] == 0 {
				t.Errorf("batch %d: no honest witness holds what was chosen", i)
			}
			for _, other := range h.real[i] {
				if holders[other] >= int(h.round.WitnessesNeeded) && c != other {
					t.Errorf("batch %d: a quorum of honest witnesses holds another result", i)
				}
			}
		}
	})
}

// TestHiddenResult: a trainer fills the places for results of its batch with others, for
// which the filters of lying witnesses vote, before a client hears of those that honest
// witnesses hold. It hears of them nevertheless.
func TestHiddenResult(t *testing.T) {
	for name, held := range map[string]int{"one counts": 1, "each witness holds another": 7} {
		t.Run(name, func(t *testing.T) {
			round, config := testRound()
			round.WitnessesElected, round.WitnessesNeeded = 10, 7
			r := newResults(round, round.Assignments(config))
			s := &r.slots[0]
			var owners []coordinator.ClientID
			for _, s := range r.slots {
				owners = append(owners, s.owner)
			}
			var lists [][]commitment
			for k := range 7 {
				list := make([]commitment, len(r.slots))
				list[0] = numbered(2, 0, k%held)
				lists = append(lists, list)
			}
			r.round.Witnesses = proofs(round.Seed, owners, append(lists, make([][]commitment, 3)...)...)
			garbage := make([]commitment, 60)
			for i := range garbage {
				garbage[i] = numbered(3, 0, i)
				for k := 7; k < 10; k++ {
					r.round.Witnesses[k].Commitments.Add(round.Seed, garbage[i][:])
				}
			}
			hear := func(c commitment) error { return r.hear(identity.ID(s.owner), announcement(s, c, [32]byte{}), nil) }
			for _, c := range garbage[:2] {
				_ = hear(c)
			}
			r.final = true
			for _, c := range garbage[2:] {
				_ = hear(c)
			}
			if want := maxCandidates + 10; len(s.candidates) != want || !errors.Is(hear(garbage[59]), errTooManyBefore) {
				t.Fatalf("%d results are kept, want %d", len(s.candidates), want)
			}
			for k := range held {
				if err := hear(lists[k][0]); !errors.Is(err, errEquivocation) {
					t.Errorf("a result of an honest witness: %v", err)
				}
			}
			for _, c := range garbage {
				_ = hear(c)
			}
			for k := range held {
				if !slices.ContainsFunc(s.candidates, func(c *candidate) bool { return c.commitment == lists[k][0] }) {
					t.Error("a result of an honest witness was displaced")
				}
			}
			if len(s.candidates) != maxCandidates+10 || len(r.displaced) < held {
				t.Errorf("%d results are kept, %d displaced", len(s.candidates), len(r.displaced))
			}
			o := r.decide()
			if counts := held == 1; counts && (len(o.counted) != 1 || o.counted[0].commitment != lists[0][0]) || !counts && (len(o.counted) > 0 || o.missing > 0) {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// TestHeldResultsAreNotDisplaced: what this client proved stays known, also when it holds a
// lower result meanwhile, or others have a witness's vote.
func TestHeldResultsAreNotDisplaced(t *testing.T) {
	round, config := testRound()
	round.WitnessesElected = 1
	r := newResults(round, round.Assignments(config))
	r.begin([32]byte{1})
	s := &r.slots[0]
	hear := func(c commitment) error { return r.hear(identity.ID(s.owner), announcement(s, c, [32]byte{1}), nil) }
	_, _ = hear(hash(2)), hear(hash(1))
	s.candidates[0].state = held
	if proof, _ := r.witness(); proof.CommitmentsRoot != merkle.Root(append([][32]byte{hash(2)}, make([][32]byte, len(r.slots)-1)...)) {
		t.Fatal("another result is proved")
	}
	s.candidates[1].state = held
	r.final = true
	r.round.Witnesses = make([]coordinator.Witness, 1)
	for n := byte(3); n < 6; n++ {
		c := hash(n)
		r.round.Witnesses[0].CommitmentsRoot = merkle.Root([][32]byte{c})
		r.round.Witnesses[0].Commitments = bloom.Filter{}
		r.round.Witnesses[0].Commitments.Add(round.Seed, c[:])
		if err := hear(c); !errors.Is(err, errEquivocation) {
			t.Fatal(err)
		}
		s.candidates[2].state = held // too late to have been proved
	}
	if s.candidates[0].commitment != hash(2) || s.candidates[1].commitment != hash(1) || len(s.candidates) != 3 || len(r.displaced) != 2 {
		t.Errorf("%d results are kept, %d displaced", len(s.candidates), len(r.displaced))
	}
}
