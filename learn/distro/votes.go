package distro

import (
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
)

// Votes contains the vote of each result in a mean, from 1 to assign.FullVote. nil gives each result a
// full vote.
type Votes []uint8

// Of returns the vote of result i.
func (v Votes) Of(i int) int {
	if v == nil {
		return assign.FullVote
	}
	return int(v[i])
}

// Sum returns the sum of the votes of a number of results.
func (v Votes) Sum(results int) (sum int) {
	for i := range results {
		sum += v.Of(i)
	}
	return sum
}

// Check returns ErrInput unless there is a valid vote for each of a number of results.
func (v Votes) Check(results int) error {
	if v == nil {
		return nil
	}
	if len(v) != results {
		return fmt.Errorf("%w: %d votes for %d results", ErrInput, len(v), results)
	}
	for i, vote := range v {
		if vote < 1 || vote > assign.FullVote {
			return fmt.Errorf("%w: result %d has a vote of %d, want 1 to %d", ErrInput, i, vote, assign.FullVote)
		}
	}
	return nil
}

// Weight returns the weight of a vote, or of a sum of votes, where the weight of a full vote is 1. It is
// exact.
func Weight(votes int) float32 { return float32(votes) / assign.FullVote }
