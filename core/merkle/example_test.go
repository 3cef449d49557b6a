package merkle_test

import (
	"crypto/sha256"
	"fmt"

	"github.com/psyche-go/psyche/core/merkle"
)

// A client that knows the root of a list verifies one element of it.
func Example() {
	var commitments [][32]byte
	for _, result := range []string{"first", "second", "third"} {
		commitments = append(commitments, sha256.Sum256([]byte(result)))
	}
	root := merkle.Root(commitments)

	proof := merkle.NewTree(commitments).Prove(1)
	fmt.Println(len(proof), "hashes")
	fmt.Println("second of three:", merkle.Verify(root, sha256.Sum256([]byte("second")), 1, 3, proof))
	fmt.Println("first of three:", merkle.Verify(root, sha256.Sum256([]byte("second")), 0, 3, proof))

	// Output:
	// 2 hashes
	// second of three: true
	// first of three: false
}
