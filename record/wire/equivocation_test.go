package wire

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

var equivocator = identity.FromSeed([identity.SeedSize]byte{9})

// results returns two signed results of one key. The second has a head of the log and the
// differences that change makes.
func results(change func(second *ResultAnnouncement)) (first, second []byte) {
	a := ResultAnnouncement{Run: walk, Step: 9, Batch: assign.BatchID{Start: 4, End: 6}, Blob: [32]byte{1}, Size: 7, Replica: [32]byte{2}}
	b := a
	b.Blob, b.Start = [32]byte{3}, testHead()
	change(&b)
	return SignAnnouncement(equivocator, a), SignAnnouncement(equivocator, b)
}

func testEquivocation() coordinator.Equivocation {
	first, second := results(func(*ResultAnnouncement) {})
	proof, ok := NewEquivocation(first, second)
	if !ok {
		panic("two results are not a proof")
	}
	return proof
}

func TestTwoResultsAreAProof(t *testing.T) {
	proof := testEquivocation()
	if proof.Client != coordinator.ClientID(equivocator.ID()) || proof.Step != 9 || !Proves(proof, walk) {
		t.Fatalf("proof about %x, step %d", proof.Client, proof.Step)
	}
	opened, err := OpenAction(SignAction(testKey(), walk, 1, proof), walk)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(coordinator.Action(proof), opened.Action); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
}

// TestPairsThatAreNoProof checks that pairs of results that honest members may sign are not a proof.
func TestPairsThatAreNoProof(t *testing.T) {
	for name, change := range map[string]func(*ResultAnnouncement){
		"the same result":           func(a *ResultAnnouncement) { a.Blob = [32]byte{1} },
		"another size of it":        func(a *ResultAnnouncement) { a.Blob, a.Size = [32]byte{1}, 8 },
		"a result of another step":  func(a *ResultAnnouncement) { a.Step, a.Start = 10, Head{} },
		"a result of another batch": func(a *ResultAnnouncement) { a.Batch.Start = 3 },
		"a batch that ends later":   func(a *ResultAnnouncement) { a.Batch.End = 7 },
		"a result in another run":   func(a *ResultAnnouncement) { a.Run[0] ^= 1 },
	} {
		first, second := results(change)
		if _, ok := NewEquivocation(first, second); ok {
			t.Errorf("%s counts as a proof", name)
		}
	}
	first, _ := results(func(*ResultAnnouncement) {})
	other := SignAnnouncement(testKey(), ResultAnnouncement{Run: walk, Step: 9, Batch: assign.BatchID{Start: 4, End: 6}, Blob: [32]byte{3}, Size: 7})
	if _, ok := NewEquivocation(first, other); ok {
		t.Error("results of two members count as a proof")
	}
}

func TestForgedProofsAreRefused(t *testing.T) {
	for name, forge := range map[string]func(p *coordinator.Equivocation){
		"another client": func(p *coordinator.Equivocation) { p.Client = coordinator.ClientID(testKey().ID()) },
		"a signature":    func(p *coordinator.Equivocation) { p.Results[1].Signature[5] ^= 1 },
		"signatures swapped": func(p *coordinator.Equivocation) {
			p.Results[0].Signature, p.Results[1].Signature = p.Results[1].Signature, p.Results[0].Signature
		},
		"a blob": func(p *coordinator.Equivocation) {
			m := []byte(p.Results[1].Message)
			m[announcedBlob] ^= 8
			p.Results[1].Message = string(m)
		},
	} {
		proof := testEquivocation()
		forge(&proof)
		if _, err := OpenAction(SignAction(testKey(), walk, 1, proof), walk); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: got %v; want error ErrSignature", name, err)
		}
	}
	if Proves(testEquivocation(), [32]byte{1}) {
		t.Error("a proof is valid for a different run")
	}
}

func TestMalformedProofsAreRefused(t *testing.T) {
	good := AppendAction(nil, testEquivocation())
	for n := 1; n < len(good); n++ {
		if _, err := DecodeAction(good[:n]); !errors.Is(err, errMalformed) {
			t.Fatalf("%d of %d bytes: %v", n, len(good), err)
		}
	}
	for name, forge := range map[string]func(p *coordinator.Equivocation){
		"one result twice": func(p *coordinator.Equivocation) { p.Results[1] = p.Results[0] },
		"another domain":   func(p *coordinator.Equivocation) { p.Results[0].Message = "x" + p.Results[0].Message[1:] },
		"a head that is not there": func(p *coordinator.Equivocation) {
			p.Results[0].Message = p.Results[0].Message[:announcedEnd-1] + "\x01"
		},
		"too long": func(p *coordinator.Equivocation) { p.Results[1].Message += "x" },
	} {
		proof := testEquivocation()
		forge(&proof)
		if _, err := DecodeAction(AppendAction(nil, proof)); !errors.Is(err, errMalformed) {
			t.Errorf("%s: got %v; want error errMalformed", name, err)
		}
	}
}
