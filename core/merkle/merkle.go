package merkle

import "crypto/sha256"

const (
	leafPrefix  = 0
	innerPrefix = 1
)

// Root returns the root of the leaves. Without leaves it is the SHA-256 of an empty string.
func Root(leaves [][32]byte) [32]byte { return NewTree(leaves).Root() }

// Verify reports whether leaf is at index in the list of count leaves with the given root. It
// reports false unless proof has exactly the required hashes.
func Verify(root, leaf [32]byte, index, count int, proof [][32]byte) bool {
	if index < 0 || index >= count {
		return false
	}
	node := hashLeaf(leaf)
	for ; count > 1; count = (count + 1) / 2 {
		if sibling := index ^ 1; sibling < count {
			if len(proof) == 0 {
				return false
			}
			if index%2 == 0 {
				node = hashInner(node, proof[0])
			} else {
				node = hashInner(proof[0], node)
			}
			proof = proof[1:]
		}
		index /= 2
	}
	return len(proof) == 0 && node == root
}

func hashLeaf(leaf [32]byte) [32]byte {
	var message [33]byte
	message[0] = leafPrefix
	copy(message[1:], leaf[:])
	return sha256.Sum256(message[:])
}

func hashInner(left, right [32]byte) [32]byte {
	var message [65]byte
	message[0] = innerPrefix
	copy(message[1:], left[:])
	copy(message[33:], right[:])
	return sha256.Sum256(message[:])
}
