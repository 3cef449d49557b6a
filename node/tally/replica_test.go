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
	next := ExtendReplica(r, 7, []Counted{{assign.BatchID{Start: 4, End: 8}, clienttest.Hash(1)}, {assign.BatchID{Start: 8, End: 12}, clienttest.Hash(2)}})
	if got := hex.EncodeToString(next[:]); got != wantNext {
		t.Errorf("next: got %s", got)
	}
	if ExtendReplica(r, 7, nil) == ExtendReplica(r, 8, nil) || ExtendReplica(r, 7, nil) == r {
		t.Error("a step without results does not change the replica")
	}
}

const (
	wantStart = "f198d69434abafd250abd0f73fa087b9187c0edba6038ee71377c1e0f8ac45fe"
	wantNext  = "59078973df068f7ae97ce33b29b728ab89a818ef4d7ad514de3bb68860d96f1f"
)
