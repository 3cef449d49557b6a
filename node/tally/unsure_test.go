package tally

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
)

// TestVotesByErrorAreUnsure checks a trainer that signs three results. The client knows only the
// result that all filters contain by error, and not the results that the witnesses hold. No root has
// a quorum, so only the filters decide. The client must notice that the outcome is unsure, so that
// it requests announcements from the witnesses.
func TestVotesByErrorAreUnsure(t *testing.T) {
	const seed, batches, witnesses = 21, 200, 4
	ids := manyOwners(batches)
	list := fullList(batches)
	late := slices.Clone(list)
	late[1] = Commitment{} // too late for some witnesses, so no root has a quorum
	round := coordinator.Round{Seed: seed, WitnessesElected: witnesses, WitnessesNeeded: uint16(assign.Quorum(witnesses))}
	round.Witnesses = clienttest.Proofs(seed, ids, list, late, list, late)
	for k := range round.Witnesses {
		round.Witnesses[k].Member = uint16(10 + k)
	}
	known := make([][]Commitment, batches)
	for i := range list {
		known[i] = []Commitment{list[i]}
	}
	forged := forge(t, seed, 1, filtersOf(round.Witnesses)...)
	known[0] = []Commitment{forged}

	v := ballot{&round, ids, known, known}.decide()
	if v.chosen[0] != forged || len(v.unknown) > 0 {
		t.Fatalf("the test needs a result that seems to count: chosen %x, unknown %v", v.chosen[0][:4], v.unknown)
	}
	if !slices.Equal(v.unread, []uint16{10, 11, 12, 13}) {
		t.Errorf("unread are %v, want all witnesses", v.unread)
	}
	known[0] = append(known[0], list[0])
	if v := (ballot{&round, ids, known, known}).decide(); v.chosen[0] != list[0] || len(v.unread) > 0 {
		t.Errorf("client that knows the witnesses' results: chosen %x, want %x; unread %v", v.chosen[0][:4], list[0][:4], v.unread)
	}
	// A single witness that signs a meaningless root does not make the other votes unsure.
	round.Witnesses[3].CommitmentsRoot = clienttest.Numbered(7, 0, 0)
	if v := (ballot{&round, ids, known, known}).decide(); len(v.unread) > 0 {
		t.Errorf("with one meaningless root, unread are %v", v.unread)
	}
}
