package tally

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
)

// manyOwners returns the owners of n batches. With many batches, the Bloom filters of the witnesses
// are so full that a search quickly finds a commitment that passes them.
func manyOwners(n int) []coordinator.ClientID {
	ids := make([]coordinator.ClientID, n)
	for i := range ids {
		ids[i] = coordinator.ClientID(clienttest.Numbered(1, i, 0))
	}
	return ids
}

// forge searches for a low commitment that all filters contain. A trainer can do this because a
// commitment needs no blob.
func forge(t interface{ Skip(args ...any) }, seed, salt uint64, filters ...*bloom.Filter) Commitment {
	keys := bloom.NewKeys(seed)
	for number := range uint64(1) << 18 {
		c := Commitment{0, 0xff}
		binary.BigEndian.PutUint64(c[2:], salt)
		binary.BigEndian.PutUint64(c[10:], number)
		positions := keys.Positions(c[:])
		if !slices.ContainsFunc(filters, func(f *bloom.Filter) bool { return !f.ContainsPositions(positions) }) {
			return c
		}
	}
	t.Skip("no commitment passes the filters")
	return Commitment{}
}

// filtersOf returns the commitment filters of witnesses.
func filtersOf(witnesses []coordinator.Witness) []*bloom.Filter {
	filters := make([]*bloom.Filter, len(witnesses))
	for k := range witnesses {
		filters[k] = &witnesses[k].Commitments
	}
	return filters
}

// only returns the held results of a client that holds at most one result of each batch.
func only(list []Commitment) [][]Commitment {
	held := make([][]Commitment, len(list))
	for i, c := range list {
		if c != (Commitment{}) {
			held[i] = []Commitment{c}
		}
	}
	return held
}

// TestForgedCommitment checks a round in which one trainer sends two results, so that no root has a
// quorum. Other trainers announce, in addition to their results, lower commitments without a blob
// that all filters contain.
func TestForgedCommitment(t *testing.T) {
	const seed, batches, witnesses, forged = 7, 200, 8, 20
	ids := manyOwners(batches)
	list := make([]Commitment, batches)
	known := make([][]Commitment, batches)
	for i := range list {
		list[i] = clienttest.Numbered(2, i, 0)
		known[i] = []Commitment{list[i]}
	}
	second := clienttest.Numbered(3, 0, 1)
	known[0] = append(known[0], second)
	other := slices.Clone(list)
	other[0] = second
	lists := make([][]Commitment, witnesses)
	for k := range lists {
		lists[k] = [][]Commitment{list, other}[k%2]
	}
	round := coordinator.Round{Seed: seed, WitnessesElected: witnesses, WitnessesNeeded: uint16(assign.Quorum(witnesses))}
	round.Witnesses = clienttest.Proofs(seed, ids, lists...)
	want := slices.Clone(list)
	want[0] = Commitment{} // neither result of the first batch has a quorum
	for i := 1; i <= forged; i++ {
		known[i] = append(known[i], forge(t, seed, uint64(i), filtersOf(round.Witnesses)...))
	}
	for name, held := range map[string][]Commitment{"holds one": list, "holds the other": other} {
		v := ballot{&round, ids, known, only(held)}.decide()
		if !slices.Equal(v.chosen, want) || len(v.unknown) > 0 {
			t.Errorf("client that %s: forged commitments count, or %v are unknown", name, v.unknown)
		}
	}
	// A client that lacks the results of hostile trainers must try the combinations that the filters
	// allow. It can do so for a few such trainers.
	for i := 6; i <= forged; i++ {
		known[i] = known[i][:1]
	}
	held := slices.Clone(list)
	for i := range 6 {
		held[i] = Commitment{}
	}
	if v := (ballot{&round, ids, known, only(held)}).decide(); !slices.Equal(v.chosen, want) {
		t.Error("a client without some results is deceived")
	}
}

// TestForgedCommitmentWithoutAResult checks a forged commitment that is the only one of its batch.
func TestForgedCommitmentWithoutAResult(t *testing.T) {
	const seed, batches = 8, 200
	ids := manyOwners(batches)
	list := make([]Commitment, batches)
	known := make([][]Commitment, batches)
	for i := range list {
		list[i] = clienttest.Numbered(2, i, 0)
		known[i] = []Commitment{list[i]}
	}
	second := clienttest.Numbered(3, 0, 1)
	known[0] = append(known[0], second)
	list[1] = Commitment{}
	other := slices.Clone(list)
	other[0] = second
	round := coordinator.Round{Seed: seed, WitnessesElected: 4, WitnessesNeeded: 3, Witnesses: clienttest.Proofs(seed, ids, list, other, list, other)}
	for _, owner := range []bool{false, true} {
		if owner { // their filters also contain the owner by error
			for k := range round.Witnesses {
				round.Witnesses[k].Participants.Add(seed, ids[1][:])
			}
		}
		known[1] = []Commitment{forge(t, seed, 1, filtersOf(round.Witnesses)...)}
		want := slices.Clone(list)
		want[0] = Commitment{}
		if v := (ballot{&round, ids, known, only(list)}).decide(); !slices.Equal(v.chosen, want) || len(v.unknown) > 0 {
			t.Errorf("owner named: %v: the forged commitment counts, or %v are unknown", owner, v.unknown)
		}
	}
}

// TestEmptyFilters checks that the filters of honest witnesses suffice. One honest witness is
// silent. Byzantine witnesses sign the honest root, but their filters contain only different results,
// including a result of a batch without a counted result.
func TestEmptyFilters(t *testing.T) {
	const seed, batches, maxFaulty = 9, 13, 4
	ids := owners(batches)
	list := make([]Commitment, batches)
	known := make([][]Commitment, batches)
	for i := range list {
		list[i] = clienttest.Hash(byte(i + 1))
		known[i] = []Commitment{clienttest.Hash(byte(i + 100)), list[i]}
	}
	list[0] = Commitment{}
	lists := make([][]Commitment, 13-1)
	for k := range lists {
		lists[k] = list
	}
	round := coordinator.Round{Seed: seed, WitnessesElected: 13, WitnessesNeeded: 9, Witnesses: clienttest.Proofs(seed, ids, lists...)}
	for k := range maxFaulty {
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

// TestFewDenialsAreNotBelieved checks that the outcome does not depend on whether a client can read
// the list of a Byzantine witness, which depends on the announcements that it received.
func TestFewDenialsAreNotBelieved(t *testing.T) {
	const seed = 11
	ids := owners(2)
	c, other := clienttest.Hash(1), clienttest.Hash(2)
	none := Commitment{}
	round := coordinator.Round{Seed: seed, WitnessesElected: 4, WitnessesNeeded: 3,
		Witnesses: clienttest.Proofs(seed, ids, []Commitment{c, none}, []Commitment{c, none}, []Commitment{none, none}, []Commitment{other, none})}
	round.Witnesses[3].Commitments.Add(seed, c[:])
	for _, known := range [][][]Commitment{{{c}, nil}, {{c, other}, nil}} {
		if v := (ballot{&round, ids, known, only([]Commitment{c, none})}).decide(); v.chosen[0] != c || len(v.unknown) > 0 {
			t.Errorf("with %d results known: %x, unknown %v", len(known[0]), v.chosen[0], v.unknown)
		}
	}
}
