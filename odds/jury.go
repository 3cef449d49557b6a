package odds

import (
	"math"
	"math/big"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
)

// Jury is how often a gang has what it needs of one.
type Jury struct {
	Members, Gang int
	Size, Quorum  int
	Convicts      *big.Rat // one of the gang accused an honest member: its other members eject it
	Blocks        *big.Rat // one of the gang is tried: its other members keep it in
}

// JuryOf returns the odds of a jury drawn from all members but the accused and the accuser, of whom
// one is of the gang.
func JuryOf(members, gang int) Jury {
	size := min(members-2, coordinator.MaxJury)
	quorum := assign.Quorum(size)
	return Jury{
		members, gang, size, quorum,
		AtLeast(quorum, members-2, gang-1, size),
		AtLeast(size-quorum+1, members-2, gang-1, size),
	}
}

// Audited returns the probability that a trainer's result of a round is audited by an honest
// verifier of the next one, where so many others are of its gang, and the gang's verifiers say
// nothing against it. Every trainer had a batch.
func Audited(members, verificationPercent, gang int) float64 {
	verifiers := assign.VerifierCount(members, verificationPercent)
	trainers := members - verifiers
	honest := 1 - float64(gang)/float64(members-1)
	double := float64(assign.DoublePercent) / 100
	// Ranks are paired. The second of a pair audits somebody else, or the same as the first, which adds
	// something where the first is of the gang.
	even, odd := float64((verifiers+1)/2), float64(verifiers/2)
	slots := even*honest + odd*((1-double)*honest+double*(1-honest)*honest)
	return min(1, slots/float64(trainers))
}

// Ejected returns the probability that who cheats in every step is ejected before it has been there
// for so many rounds, from audits by honest verifiers alone (Audited). It trains where it does not
// verify; who is audited in a round is accused in the next one and out after the one that follows.
func Ejected(members, verificationPercent, gang, rounds int) float64 {
	p := found(members, verificationPercent, gang)
	return 1 - math.Pow(1-p, float64(max(0, rounds-roundsToEject)))
}

// found is how probable it is that a member trains in a round, and that the result is audited by
// somebody honest.
func found(members, verificationPercent, gang int) float64 {
	trains := 1 - float64(assign.VerifierCount(members, verificationPercent))/float64(members)
	return trains * Audited(members, verificationPercent, gang)
}

// roundsToEject are those of the audit and of the jury's votes.
const roundsToEject = 2

// RoundsToEject returns after how many rounds Ejected is at least sure; 0: never.
func RoundsToEject(members, verificationPercent, gang int, sure float64) int {
	p := found(members, verificationPercent, gang)
	if !(p > 0) {
		return 0
	}
	return roundsToEject + within(p, sure)
}

// within returns in how many rounds what happens in each with probability p has happened with
// probability sure.
func within(p, sure float64) int { return int(math.Ceil(math.Log1p(-sure) / math.Log1p(-p))) }
