package assign

import (
	"slices"
	"strconv"
)

// maxWitnesses is the maximum number of witnesses if witnessNodes is 0: enough for a quorum that
// outvotes dishonest witnesses, but few enough to keep a round's record small.
const maxWitnesses = 32

// BatchID identifies a batch by the half-open interval of its sequence indices.
type BatchID struct {
	Start, End uint64
}

// Len returns the number of sequences of the batch.
func (b BatchID) Len() uint64 { return b.End - b.Start }

// String returns the interval as [start,end).
func (b BatchID) String() string {
	return "[" + strconv.FormatUint(b.Start, 10) + "," + strconv.FormatUint(b.End, 10) + ")"
}

// Assignment is one member's batch in a round.
type Assignment struct {
	Member int // index in the round's members
	Batch  BatchID
	Vote   uint8 // weight of the result among the results of the round, from 1 to FullVote
}

// Witnesses returns the members that witness a round, in the order of their positions in the
// "witness" shuffle. It elects witnessNodes members, or all if there are fewer. If witnessNodes is
// 0, it elects all members, but at most 32.
func Witnesses(seed uint64, members, witnessNodes int) []int {
	if members <= 0 {
		return nil
	}
	return inOrder(uint32(members), seed, saltWitness)[:electedWitnesses(members, witnessNodes)]
}

// IsWitness reports whether Witnesses contains the member. For one member it is faster than
// Witnesses, and trivial if all are elected.
func IsWitness(seed uint64, members, witnessNodes, member int) bool {
	if member < 0 || member >= members {
		return false
	}
	elected := electedWitnesses(members, witnessNodes)
	return elected == members || Position(uint32(member), uint32(members), seed, saltWitness) < uint32(elected)
}

// Trainers returns the members that train in a round, in ascending order. The members at the first
// ⌊members × verificationPercent / 100⌋ positions of the "committee" shuffle do not train; they
// can audit. At least one member trains.
func Trainers(seed uint64, members, verificationPercent int) []int {
	if members <= 0 {
		return nil
	}
	idle := nonTrainers(members, verificationPercent)
	if idle == 0 { // all members train, as in most runs: no shuffle is needed
		trainers := make([]int, members)
		for i := range trainers {
			trainers[i] = i
		}
		return trainers
	}
	trainers := slices.Clone(inOrder(uint32(members), seed, saltCommittee)[idle:])
	slices.Sort(trainers)
	return trainers
}

// Owners returns the members that have a batch in the result of Batches, in ascending order. If every
// trainer gets a batch, Owners is cheaper than Batches.
func Owners(seed uint64, members, verificationPercent int, batchSize uint32, levels []uint8) []int {
	trainers := Trainers(seed, members, verificationPercent)
	if areEqual(levels) && uint64(batchSize) >= uint64(len(trainers)) {
		return trainers
	}
	var owners []int
	for _, a := range Batches(seed, members, verificationPercent, 0, batchSize, levels) {
		owners = append(owners, a.Member)
	}
	slices.Sort(owners)
	return owners
}

// BatchCount returns the number of batches that Batches returns.
func BatchCount(seed uint64, members, verificationPercent int, batchSize uint32, levels []uint8) int {
	if !areEqual(levels) {
		return len(Owners(seed, members, verificationPercent, batchSize, levels))
	}
	if members <= 0 {
		return 0
	}
	trainers := members - nonTrainers(members, verificationPercent)
	return int(min(uint64(trainers), uint64(batchSize)))
}

// Batches divides batchSize sequences, starting at dataIndex, into one batch for each trainer and
// returns the batches in ascending order, which is the order of the "batch" shuffle. levels contains
// the level of each member: 8 × log₂ of its speed, in any unit. The sizes of the batches are
// proportional to the speeds, within limits (see shares), and slow trainers have less than a full vote
// (see votes). Without levels, or if all levels are equal, each of n trainers gets ⌊batchSize/n⌋
// sequences and a full vote, and the first batchSize mod n trainers get one more sequence. A trainer
// without sequences is omitted. The batches have no gaps and do not overlap.
func Batches(seed uint64, members, verificationPercent int, dataIndex uint64, batchSize uint32, levels []uint8) []Assignment {
	trainers := Trainers(seed, members, verificationPercent)
	if len(trainers) == 0 || batchSize == 0 {
		return nil
	}
	if levels == nil {
		levels = make([]uint8, members)
	}
	order := make([]int, len(trainers))
	for position, index := range inOrder(uint32(len(trainers)), seed, saltBatch) {
		order[position] = trainers[index]
	}
	assignments := make([]Assignment, 0, min(uint64(len(order)), uint64(batchSize)))
	start, levels := dataIndex, pick(levels, order)
	votes := votes(levels)
	for position, size := range shares(levels, batchSize) {
		if size > 0 {
			end := start + uint64(size)
			assignments = append(assignments, Assignment{Member: order[position], Batch: BatchID{Start: start, End: end}, Vote: votes[position]})
			start = end
		}
	}
	return assignments
}

// Quorum returns ⌈2n/3⌉, the number of members, out of n, that must agree. Two quorums of the same n
// members always share an honest member if fewer than a third of them are dishonest.
func Quorum(n int) int {
	if n <= 0 {
		return 0
	}
	return (2*n + 2) / 3
}
