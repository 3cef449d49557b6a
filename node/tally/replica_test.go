package tally

import (
	"encoding/hex"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/node/clienttest"
)

// TestReplicaChain checks that the bytes of the chain do not change.
func TestReplicaChain(t *testing.T) {
	r := StartReplica([32]byte{1, 2, 3})
	if got := hex.EncodeToString(r[:]); got != wantStart {
		t.Errorf("start: got %s", got)
	}
	counted := []Counted{
		{assign.BatchID{Start: 4, End: 8}, clienttest.Hash(1), assign.FullVote},
		{assign.BatchID{Start: 8, End: 12}, clienttest.Hash(2), assign.FullVote},
	}
	next := ExtendReplica(r, 7, counted)
	if got := hex.EncodeToString(next[:]); got != wantNext {
		t.Errorf("next: got %s", got)
	}
	if ExtendReplica(r, 7, nil) == ExtendReplica(r, 8, nil) || ExtendReplica(r, 7, nil) == r {
		t.Error("a step without results does not change the replica")
	}
	counted[1].Vote = 3
	voted := ExtendReplica(r, 7, counted)
	if got := hex.EncodeToString(voted[:]); got != wantVoted {
		t.Errorf("with a vote: got %s", got)
	}
	seen := map[[32]byte]bool{next: true, voted: true}
	for _, votes := range [][2]uint8{{16, 4}, {3, 16}, {3, 3}, {1, 16}} {
		counted[0].Vote, counted[1].Vote = votes[0], votes[1]
		if r := ExtendReplica(r, 7, counted); seen[r] {
			t.Errorf("votes %v lead to the hash of other votes", votes)
		} else {
			seen[r] = true
		}
	}
}

const (
	wantStart = "f198d69434abafd250abd0f73fa087b9187c0edba6038ee71377c1e0f8ac45fe"
	wantVoted = "6110729322e466f8198b7ae9f418af64dd681856065b6761a9483043978ce5aa"
	wantNext  = "59078973df068f7ae97ce33b29b728ab89a818ef4d7ad514de3bb68860d96f1f"
)
