package assign

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestVotesOfSpeeds(t *testing.T) {
	tests := []struct {
		name         string
		levels, want []uint8
	}{
		{"equal levels", []uint8{9, 9, 9}, []uint8{16, 16, 16}},
		{"no levels", []uint8{0, 0, 0, 0}, []uint8{16, 16, 16, 16}},
		{"one trainer", []uint8{3}, []uint8{16}},
		{"two trainers", []uint8{80, 96}, []uint8{16, 16}},
		{"speeds 1:4:16", []uint8{80, 96, 112}, []uint8{4, 16, 16}},
		{"one and two levels below", []uint8{79, 78, 80, 80, 80, 80}, []uint8{16, 13, 16, 16, 16, 16}},
		{"an octave", []uint8{72, 73, 74, 80, 80, 80, 80, 80, 80}, []uint8{8, 8, 9, 16, 16, 16, 16, 16, 16}},
		{"at least 1/16", []uint8{1, 80, 80}, []uint8{1, 16, 16}},
		{"1/16 offerers", []uint8{48, 48, 80, 80, 80, 80, 80}, []uint8{1, 1, 16, 16, 16, 16, 16}},
	}
	for _, test := range tests {
		if got := votes(test.levels); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// TestVotes checks what every list of votes obeys. A vote below FullVote is at most proportional to the
// weight that determines the share, and smaller than that by less than a sixteenth of a full vote.
func TestVotes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		levels := drawLevels(t)
		votes, reference := votes(levels), int(Reference(levels))
		weights, _ := weigh(levels, Reference(levels))
		less := 0
		for i, vote := range votes {
			exact := FullVote * weights[i] // times weight(0)
			switch {
			case int(levels[i])+1 >= reference:
				if vote != FullVote {
					t.Fatalf("level %d of a reference level of %d: vote %d", levels[i], reference, vote)
				}
			case vote < 1 || uint64(vote)*weight(0) > exact || uint64(vote+1)*weight(0) <= exact:
				t.Fatalf("level %d of a reference level of %d: vote %d, want %d/%d rounded down", levels[i], reference, vote, exact, weight(0))
			default:
				less++
			}
			for j := range i {
				if levels[i] > levels[j] && votes[i] < votes[j] || levels[i] < levels[j] && votes[i] > votes[j] {
					t.Fatalf("levels %d and %d: votes %d and %d", levels[i], levels[j], votes[i], votes[j])
				}
			}
		}
		if 3*less > len(levels) {
			t.Fatalf("%d of %d votes are less than a full vote", less, len(levels))
		}
	})
}

// TestSplitKeysGainNoVotes divides the work of a trainer among several keys, with the same reference
// level. Together they have at most its vote.
func TestSplitKeysGainNoVotes(t *testing.T) {
	const reference = 100
	voteOf := func(level int) int { return int(votes([]uint8{uint8(level), reference, reference})[0]) }
	rapid.Check(t, func(t *rapid.T) {
		level := rapid.IntRange(0, reference-2).Draw(t, "level")
		left, sum := weight(level-reference), 0
		var keys []int
		for left >= weight(-ShareRange) {
			most := level
			for weight(most-reference) > left {
				most--
			}
			key := rapid.IntRange(0, most).Draw(t, "key")
			keys, sum, left = append(keys, key), sum+voteOf(key), left-weight(key-reference)
		}
		if sum > voteOf(level) {
			t.Fatalf("keys with levels %v have %d votes together, one key with level %d has %d", keys, sum, level, voteOf(level))
		}
	})
}

// TestReferenceAboveSlowestHonest checks that fewer than a third of the trainers cannot move the
// reference level below the slowest of the others. So they cannot get a full vote for less work.
func TestReferenceAboveSlowestHonest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		honest := rapid.SliceOfN(rapid.Uint8(), 3, 170).Draw(t, "levels")
		others := rapid.SliceOfN(rapid.Uint8(), 1, (len(honest)-1)/2).Draw(t, "levels of others")
		all := slices.Concat(honest, others)
		if reference := int(Reference(all)); reference < int(slices.Min(honest)) {
			t.Fatalf("the reference level %d is below all of %v", reference, honest)
		}
		// At any speed of the other trainers, the honest trainers have more votes.
		votes := votes(all)
		sums := [2]int{}
		for i, vote := range votes {
			sums[min(i/len(honest), 1)] += int(vote)
		}
		if sums[1] >= sums[0] {
			t.Fatalf("the other trainers have %d votes, honest trainers %d", sums[1], sums[0])
		}
	})
}
