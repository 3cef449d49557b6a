// Package merkle implements a Merkle tree: it commits to a list of 32-byte leaves by one hash, and
// proves that a leaf is at an index of the list.
//
// The tree follows RFC 6962, section 2.1. A leaf is hashed with the prefix 0, and two nodes with
// the prefix 1. A node without a sibling moves up a level unchanged. Two different lists, of equal
// or different lengths, therefore never have the same root.
//
//	root := merkle.Root(commitments)
//	proof := merkle.NewTree(commitments).Prove(3)
//	ok := merkle.Verify(root, commitments[3], 3, len(commitments), proof)
package merkle
