package odds

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
)

// eachMultiset calls f with each ascending list of a number of the levels.
func eachMultiset(levels []uint8, count int, f func(list []uint8)) {
	list := make([]uint8, count)
	var fill func(at, from int)
	fill = func(at, from int) {
		if at == count {
			f(list)
			return
		}
		for i := from; i < len(levels); i++ {
			list[at] = levels[i]
			fill(at+1, i)
		}
	}
	fill(0, 0)
}

// TestVotesOfCoalitions tries all combinations of a few levels. The differences between these levels
// include the smallest difference that counts, and more than the range of shares.
func TestVotesOfCoalitions(t *testing.T) {
	levels := []uint8{40, 78, 79, 80, 82, 96, 200}
	third, half := big.NewRat(1, 3), big.NewRat(1, 2)
	for trainers := 1; trainers <= 7; trainers++ {
		coalition, largest := MostFaulty(trainers), new(big.Rat)
		eachMultiset(levels, trainers-coalition, func(honest []uint8) {
			most := mostVotes(honest, coalition)
			if most.Cmp(largest) > 0 {
				largest.Set(most)
			}
			if honest[0] == honest[len(honest)-1] && most.Cmp(third) >= 0 {
				t.Errorf("%d of %d trainers have %v of the votes among equal trainers", coalition, trainers, most)
			}
			eachMultiset(levels, coalition, func(theirs []uint8) {
				if share := voteShare(slices.Concat(honest, theirs), coalition); share.Cmp(most) > 0 {
					t.Errorf("levels %v among %v have %v of the votes, want at most %v", theirs, honest, share, most)
				}
			})
		})
		if limit := voteLimit(trainers, coalition); largest.Cmp(limit) != 0 || limit.Cmp(half) >= 0 {
			t.Errorf("%d of %d trainers have %v of the votes, want %v and less than a half", coalition, trainers, largest, limit)
		}
	}
}

func TestVotesOfSlowCoalitions(t *testing.T) {
	for _, trainers := range []int{4, 16, 64, 256} {
		coalition := MostFaulty(trainers)
		slow := slices.Concat(slices.Repeat([]uint8{112}, trainers-coalition), slices.Repeat([]uint8{80}, coalition))
		if share, want := voteShare(slow, coalition), big.NewRat(int64(coalition), int64(16*(trainers-coalition)+coalition)); share.Cmp(want) != 0 {
			t.Errorf("%d of %d trainers with 1/16 of the speed have %v of the votes, want %v", coalition, trainers, share, want)
		}
	}
}

// votes returns the table of README.md about the votes of coalitions.
func votes() string {
	var b strings.Builder
	b.WriteString("| trainers | coalition | equal speeds | a third each at 1:4:16, the coalition fast | any speeds | equal speeds, the coalition at 1/16 |\n|---|---|---|---|---|---|\n")
	share := func(r *big.Rat) string {
		f, _ := r.Float64()
		return percent(f)
	}
	for _, trainers := range []int{4, 16, 64, 256} {
		coalition := MostFaulty(trainers)
		equal := slices.Repeat([]uint8{112}, trainers-coalition)
		mixed := slices.Concat(slices.Repeat([]uint8{80}, trainers/3), slices.Repeat([]uint8{96}, trainers-trainers/3-coalition))
		slow := slices.Concat(equal, slices.Repeat([]uint8{80}, coalition))
		fmt.Fprintf(&b, "| %d | %d | %s | %s | %s | %s |\n", trainers, coalition, share(mostVotes(equal, coalition)),
			share(mostVotes(mixed, coalition)), share(voteLimit(trainers, coalition)), share(voteShare(slow, coalition)))
	}
	return b.String()
}

func TestTableOfVotes(t *testing.T) { keep(t, readme, "votes", votes()) }
