package merkle

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"
)

// rootByDefinition implements section 2.1 of RFC 6962 literally: it splits at the largest power of
// two below the length.
func rootByDefinition(leaves [][32]byte) [32]byte {
	switch len(leaves) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(append([]byte{0}, leaves[0][:]...))
	}
	split := 1
	for split*2 < len(leaves) {
		split *= 2
	}
	left, right := rootByDefinition(leaves[:split]), rootByDefinition(leaves[split:])
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}

func leavesOf(n int) [][32]byte {
	leaves := make([][32]byte, n)
	for i := range leaves {
		leaves[i] = sha256.Sum256([]byte{byte(i), byte(i >> 8)})
	}
	return leaves
}

func TestRootFollowsRFC6962(t *testing.T) {
	for n := range 70 {
		leaves := leavesOf(n)
		if Root(leaves) != rootByDefinition(leaves) {
			t.Errorf("root of %d leaves differs from the definition", n)
		}
	}
	empty := Root(nil)
	if got := hex.EncodeToString(empty[:]); got != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("root of nothing: %s", got)
	}
}

func TestRootLeavesItsInputAlone(t *testing.T) {
	leaves := leavesOf(5)
	Root(leaves)
	NewTree(leaves).Prove(2)
	for i, leaf := range leavesOf(5) {
		if leaves[i] != leaf {
			t.Errorf("leaf %d was overwritten", i)
		}
	}
}

// TestOddLeafIsNotDuplicated checks that [a,b,c] and [a,b,c,c] have different roots.
func TestOddLeafIsNotDuplicated(t *testing.T) {
	leaves := leavesOf(3)
	if Root(leaves) == Root(append(leaves, leaves[2])) {
		t.Error("a repeated last leaf does not change the root")
	}
}

func TestEveryProofVerifies(t *testing.T) {
	for n := 1; n <= 40; n++ {
		leaves := leavesOf(n)
		root := Root(leaves)
		for i := range leaves {
			proof := NewTree(leaves).Prove(i)
			if !Verify(root, leaves[i], i, n, proof) {
				t.Fatalf("proof of leaf %d of %d is invalid", i, n)
			}
			for other := range n + 1 {
				if other != i && Verify(root, leaves[i], other, n, proof) {
					t.Fatalf("proof of leaf %d of %d is valid at %d", i, n, other)
				}
			}
			if Verify(root, leaves[i], i, n, append(proof, root)) {
				t.Fatalf("leaf %d of %d: a proof with one hash too many is valid", i, n)
			}
			if len(proof) > 0 && Verify(root, leaves[i], i, n, proof[:len(proof)-1]) {
				t.Fatalf("leaf %d of %d: a proof with one hash too few is valid", i, n)
			}
		}
	}
}

func TestTamperedProofFails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 60).Draw(t, "leaves")
		i := rapid.IntRange(0, n-1).Draw(t, "index")
		leaves := leavesOf(n)
		proof := NewTree(leaves).Prove(i)
		if len(proof) == 0 {
			return
		}
		at := rapid.IntRange(0, len(proof)-1).Draw(t, "hash")
		proof[at][rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if Verify(Root(leaves), leaves[i], i, n, proof) {
			t.Fatal("a changed proof is valid")
		}
	})
}

func TestNoSuchLeaf(t *testing.T) {
	leaves := leavesOf(3)
	if tree := NewTree(leaves); tree.Prove(3) != nil || tree.Prove(-1) != nil {
		t.Error("there is a proof of a leaf outside the list")
	}
	if Verify(Root(leaves), leaves[0], -1, 3, nil) || Verify(Root(nil), [32]byte{}, 0, 0, nil) {
		t.Error("a leaf outside the list is valid")
	}
}

// TestTreeIsTheList checks that a tree has the root of its list and proofs of the length that
// ProofLength returns.
func TestTreeIsTheList(t *testing.T) {
	for n := range 40 {
		leaves := leavesOf(n)
		tree := NewTree(leaves)
		if tree.Root() != Root(leaves) {
			t.Errorf("the tree of %d leaves has a different root", n)
		}
		for i := -1; i <= n; i++ {
			if proof := tree.Prove(i); proof != nil && ProofLength(i, n) != len(proof) {
				t.Errorf("leaf %d of %d: %d hashes, ProofLength is %d", i, n, len(proof), ProofLength(i, n))
			}
		}
	}
}
