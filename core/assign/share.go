package assign

import (
	"math"
	"slices"
)

// levelsPerOctave is the difference between the levels of two speeds, one of which is twice the other.
const levelsPerOctave = 8

// ShareRange limits shares, in levels above and below the reference level: a trainer gets at most 16
// times and at least 1/16 of the share of a trainer with the reference level.
const ShareRange = 4 * levelsPerOctave

// auditRange is how far, in a run with audits, a level of the fastest third may be above the other levels: a factor of 4.
const auditRange = 2 * levelsPerOctave

// mantissas contains round(256 × 2^(i/8)).
var mantissas = [levelsPerOctave]uint64{256, 279, 304, 332, 362, 395, 431, 470}

// shares divides batchSize sequences among trainers in proportion to their weights, and returns the
// number of sequences of each. It rounds all numbers down and gives one of the remaining sequences
// each to the trainers with the highest weights, in order. Only fast trainers therefore get more than
// their exact share, and the additional sequence takes them the least time.
func shares(levels []uint8, batchSize uint32) []uint32 {
	weights, sum := weigh(levels, Reference(levels))
	sizes := make([]uint32, len(levels))
	byWeight := make([]int, len(levels))
	left := batchSize
	for i, weight := range weights {
		sizes[i] = uint32(uint64(batchSize) * weight / sum) // at most 2³² × 2¹⁶
		left -= sizes[i]
		byWeight[i] = i
	}
	slices.SortStableFunc(byWeight, func(a, b int) int { return int(weights[b]) - int(weights[a]) })
	for _, i := range byWeight[:left] {
		sizes[i]++
	}
	return sizes
}

// Reference returns the reference level of some levels: the lowest level above the lowest third. So the
// members with the lowest third of the levels cannot change it to a level below all others.
func Reference(levels []uint8) uint8 {
	return slices.Sorted(slices.Values(levels))[len(levels)/3]
}

// weigh returns the weights of members, from 2⁸ to 2¹⁶, and their sum. A level directly above the
// reference level counts as the reference level: equal machines often measure levels that differ by 1.
func weigh(levels []uint8, reference uint8) (weights []uint64, sum uint64) {
	weights = make([]uint64, len(levels))
	for i, level := range levels {
		above := int(level) - int(reference)
		if above == 1 {
			above = 0
		}
		weights[i] = weight(above)
		sum += weights[i]
	}
	return weights, sum
}

// FullBatchUnit is the size of one sequence in FullBatches.
const FullBatchUnit = 1 << 8

// FullBatches returns the size of each member's full batch, multiplied by FullBatchUnit. levels contains
// the level of each member. A round's full batches take all members equally long, if their levels are
// right. No batch is larger than the full batch of its trainer. If all levels are equal, the largest
// batch is full.
func FullBatches(batches []Assignment, levels []uint8) []uint64 {
	if len(batches) == 0 {
		return make([]uint64, len(levels))
	}
	trainers := make([]uint8, len(batches))
	for i, b := range batches {
		trainers[i] = levels[b.Member]
	}
	const fraction = 1 << 16
	weights, _ := weigh(levels, Reference(trainers))
	most := uint64(0) // sequences per weight
	for _, b := range batches {
		weight := weights[b.Member]
		most = max(most, (b.Batch.Len()*fraction+weight-1)/weight)
	}
	full := make([]uint64, len(levels))
	for i, weight := range weights {
		full[i] = (weight*most + fraction/FullBatchUnit - 1) / (fraction / FullBatchUnit)
	}
	return full
}

// weight returns the weight of a level that is above the reference level by the given number.
func weight(above int) uint64 {
	above = max(-ShareRange, min(above, ShareRange)) + ShareRange
	return mantissas[above%levelsPerOctave] << (above / levelsPerOctave)
}

// CutFastest cuts the levels of the fastest members, fewer than a third but at least one, to at most auditRange above
// the highest level of the others. So at least a third of the members can repeat any batch of a round in at most four
// times its time. These members are not all in a coalition of fewer than a third, which could otherwise have batches
// that no honest member is fast enough to audit.
func CutFastest(levels []uint8) {
	fastest := max(1, (len(levels)-1)/3)
	if fastest >= len(levels) {
		return
	}
	sorted := slices.Sorted(slices.Values(levels))
	highest := uint8(min(int(sorted[len(sorted)-1-fastest])+auditRange, math.MaxUint8))
	for i := range levels {
		levels[i] = min(levels[i], highest)
	}
}

// FullVote is the vote of a trainer with at least the reference level.
const FullVote = 16

// votes returns the vote of each trainer, from 1 to FullVote. Below the reference level, a vote is at
// most proportional to the speed, so slower keys have no more votes together than one key with the
// sum of their speeds. A level directly below the reference level counts as the reference level.
func votes(levels []uint8) []uint8 {
	reference := int(Reference(levels))
	votes := make([]uint8, len(levels))
	for i, level := range levels {
		above := int(level) - reference
		if above >= -1 {
			above = 0
		}
		votes[i] = uint8(FullVote * weight(above) / weight(0))
	}
	return votes
}

// areEqual reports whether all members have the same level, and therefore equal shares.
func areEqual(levels []uint8) bool {
	return !slices.ContainsFunc(levels, func(level uint8) bool { return level != levels[0] })
}

// pick returns the levels of the members with these indices.
func pick(levels []uint8, members []int) []uint8 {
	picked := make([]uint8, len(members))
	for i, member := range members {
		picked[i] = levels[member]
	}
	return picked
}
