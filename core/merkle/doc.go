// Package merkle commits to a list of 32-byte leaves by one hash, and proves that a
// leaf stands at a place in the list.
//
// The tree is that of RFC 6962, section 2.1: a leaf is hashed with the prefix 0, two
// nodes with the prefix 1, and a node without a partner moves up a level unchanged, so
// that no two lists of one length, nor of different lengths, have the same root.
//
//	root := merkle.Root(commitments)
//	proof := merkle.NewTree(commitments).Prove(3)
//	ok := merkle.Verify(root, commitments[3], 3, len(commitments), proof)
package merkle
