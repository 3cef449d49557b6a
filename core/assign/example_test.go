package assign_test

import (
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
)

// This example computes the roles in a round of five members and two witnesses, with 64 sequences
// from index 1000 on. Every participant computes the same roles from the seeds of the round.
func Example() {
	const seed, batchSeed, members = 42, 7, 5
	for _, a := range assign.Batches(batchSeed, members, 0, 1000, 64, nil) {
		fmt.Printf("member %d trains %v\n", a.Member, a.Batch)
	}
	witnesses := assign.Witnesses(seed, members, 2)
	fmt.Println("witnesses", witnesses, "of whom a quorum are", assign.Quorum(len(witnesses)))

	// Output:
	// member 0 trains [1000,1013)
	// member 2 trains [1013,1026)
	// member 1 trains [1026,1039)
	// member 3 trains [1039,1052)
	// member 4 trains [1052,1064)
	// witnesses [3 0] of whom a quorum are 2
}
