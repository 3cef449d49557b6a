package bloom_test

import (
	"crypto/sha256"
	"fmt"

	"github.com/psyche-go/psyche/core/bloom"
)

// A witness lists the results that it holds, under the seed of a round.
func Example() {
	const seed = 42
	mine, other := sha256.Sum256([]byte("a result")), sha256.Sum256([]byte("another"))
	var held bloom.Filter
	held.Add(seed, mine[:])
	fmt.Println(held.Contains(seed, mine[:]), held.Contains(seed, other[:]), held.OnesCount())

	// Output:
	// true false 7
}
