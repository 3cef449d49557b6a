package odds

import (
	"math"
	"math/big"

	"github.com/psyche-go/psyche/core/assign"
)

// voteShare returns the share of the votes of a round's results that a coalition has, if all results
// count. levels contains the levels of the trainers, the coalition last.
func voteShare(levels []uint8, coalition int) *big.Rat {
	const enough = 1 << 24 // sequences, so that each trainer has a batch
	theirs, all := int64(0), int64(0)
	for _, a := range assign.Batches(0, len(levels), 0, 0, enough, levels) {
		if all += int64(a.Vote); a.Member >= len(levels)-coalition {
			theirs += int64(a.Vote)
		}
	}
	return big.NewRat(theirs, all)
}

// mostVotes returns the largest share of the votes that a coalition of fewer than a third of the trainers
// can have among honest trainers with given levels. The coalition is as fast as possible then: a higher
// level of one of its members never lowers its own vote, and never raises the vote of another trainer.
func mostVotes(honest []uint8, coalition int) *big.Rat {
	levels := append([]uint8{}, honest...)
	for range coalition {
		levels = append(levels, math.MaxUint8)
	}
	return voteShare(levels, coalition)
}

// voteLimit returns the largest mostVotes for any levels of the honest trainers. The lowest third of the
// trainers has the smallest vote then, and each trainer above it has a full vote. If fewer than a third collude, it is
// less than a half.
func voteLimit(trainers, coalition int) *big.Rat {
	slow := trainers / 3
	return big.NewRat(int64(assign.FullVote*coalition), int64(assign.FullVote*(trainers-slow)+slow))
}
