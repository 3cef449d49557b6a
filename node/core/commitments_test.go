package core

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// reveal simulates the run's acceptance of a value.
func reveal(t *testing.T, member *coordinator.Client, value [32]byte) {
	t.Helper()
	if sha256.Sum256(value[:]) != member.Commitment {
		t.Fatalf("%x is not what it committed to", value[:4])
	}
	member.Commitment = value
}

// TestValuesOfAChain checks that a witness reveals a value with each proof until only the value for
// the next epoch is left, also across processes.
func TestValuesOfAChain(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	newProcess := func() *commitments { r := newCommitments([32]byte{9}); return &r }
	r := newProcess()
	member := &coordinator.Client{Commitment: r.commitment(3, now)}
	if again := r.commitment(3, now.Add(time.Second)); again != member.Commitment {
		t.Error("the commitment changed before it was used")
	}
	revealed := 0
	for range linksOfChain + 10 {
		if revealed%500 == 7 {
			r = newProcess()
		}
		value := r.withProof(member, 4)
		if value == [32]byte{} {
			break
		}
		reveal(t, member, value)
		revealed++
	}
	if revealed != linksOfChain-1 {
		t.Errorf("%d values, want %d", revealed, linksOfChain-1)
	}
	if !r.opens(member, 4) || !newProcess().opens(member, 4) {
		t.Fatal("nothing is left to be ready with")
	}
	ready, ok := r.ready(member, 4, now)
	if !ok || ready.Next == member.Commitment {
		t.Fatalf("got %+v, %v; want ok and ready.Next != member.Commitment", ready, ok)
	}
	reveal(t, member, ready.Reveal)
	member.Commitment = ready.Next
	if next := r.commitment(5, now); next != ready.Next {
		t.Error("the commitment changed before it was used")
	}
	if value := r.withProof(member, 4); value == [32]byte{} {
		t.Error("the next chain reveals nothing")
	}
	if next := r.commitment(5, now); next == ready.Next {
		t.Error("a commitment is used twice, although other members know the values")
	}
}

// TestForeignCommitment checks that a commitment of a different chain cannot be opened, and that
// nothing is revealed for it.
func TestForeignCommitment(t *testing.T) {
	r := newCommitments([32]byte{9})
	member := &coordinator.Client{Commitment: [32]byte{1}}
	if r.opens(member, 1) || r.withProof(member, 1) != [32]byte{} {
		t.Error("a foreign commitment can be opened")
	}
	if _, ok := r.ready(member, 1, time.UnixMilli(5)); ok {
		t.Error("Ready is possible with a foreign commitment")
	}
	if r.withProof(&coordinator.Client{}, 1) != [32]byte{} {
		t.Error("a value is revealed without a commitment")
	}
}
