package merkle

import "crypto/sha256"

// Tree contains the leaves and all nodes above them, to prove many leaves of a list. It takes 64
// bytes per leaf.
type Tree struct {
	levels [][][32]byte // lowest first, starting with the hashes of the leaves
}

// NewTree hashes the leaves.
func NewTree(leaves [][32]byte) *Tree {
	level := make([][32]byte, len(leaves))
	for i, leaf := range leaves {
		level[i] = hashLeaf(leaf)
	}
	t := &Tree{levels: [][][32]byte{level}}
	for len(level) > 1 {
		above := make([][32]byte, 0, (len(level)+1)/2)
		for i := 0; i < len(level); i += 2 {
			if i+1 < len(level) {
				above = append(above, hashInner(level[i], level[i+1]))
			} else {
				above = append(above, level[i])
			}
		}
		t.levels, level = append(t.levels, above), above
	}
	return t
}

// Root returns the root, as the function Root does.
func (t *Tree) Root() [32]byte {
	if top := t.levels[len(t.levels)-1]; len(top) == 1 {
		return top[0]
	}
	return sha256.Sum256(nil)
}

// Prove returns the siblings on the path from the leaf at index to the root, lowest first, or nil
// if there is no such leaf. A level on which the node has no sibling adds nothing, so the proof has
// at most ⌈log2 n⌉ hashes for n leaves.
func (t *Tree) Prove(index int) [][32]byte {
	if index < 0 || index >= len(t.levels[0]) {
		return nil
	}
	proof := [][32]byte{}
	for _, level := range t.levels[:len(t.levels)-1] {
		if sibling := index ^ 1; sibling < len(level) {
			proof = append(proof, level[sibling])
		}
		index /= 2
	}
	return proof
}

// ProofLength returns the number of hashes that Prove returns for the leaf at index of count
// leaves.
func ProofLength(index, count int) int {
	length := 0
	for ; count > 1; count = (count + 1) / 2 {
		if index^1 < count {
			length++
		}
		index /= 2
	}
	return length
}
