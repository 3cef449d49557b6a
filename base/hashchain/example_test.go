package hashchain_test

import (
	"crypto/sha256"
	"fmt"

	"github.com/psyche-go/psyche/base/hashchain"
)

// A host draws numbers that it fixed before the run began. Every client can verify each number, but
// only the host can predict them.
func Example() {
	chain := hashchain.New([32]byte{1, 2, 3}, 1000)
	known := chain.Commitment() // published first
	for range 3 {
		draw, left, ok := chain.Opening(known)
		fmt.Println(ok, sha256.Sum256(draw[:]) == known, left)
		known = draw
	}

	// Output:
	// true true 999
	// true true 998
	// true true 997
}
