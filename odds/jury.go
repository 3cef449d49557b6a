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
	Size, Needed  int
	Convicts      *big.Rat // a trial of one of the gang against an honest member: the gang decides it
	Blocks        *big.Rat // one of the gang is tried: its other members keep it in
	Lax           *big.Rat // the same when a tenth of the honest ones cannot judge
}

// JuryOf returns the odds of a jury drawn from all members but the accused and the accuser, of whom
// one is of the gang.
func JuryOf(members, gang int) Jury {
	size := min(members-2, coordinator.MaxJury)
	needed := (11*size + 19) / 20
	absent := (members - 1 - gang + 9) / 10
	return Jury{
		members, gang, size, needed,
		AtLeast(needed, members-2, gang-1, size),
		AtLeast(size-needed+1, members-2, gang-1, size),
		AtLeast(size-needed+1, members-2, gang-1+absent, size),
	}
}

// Rounds of which members that train nothing draw a result to audit: half the time of the newest,
// else of all that they keep.
const (
	newestRounds = 2
	keptRounds   = 12
)

// Audited returns the probability that a result is ever audited by an honest member, where its
// trainer is one of a gang of so many, whose audits find nothing. Every trainer has a batch. It is
// close to 1 − exp(−h·v/(1−v)), of which h are honest and v train nothing.
func Audited(members, verificationPercent, gang int) float64 {
	trainers := float64(members - assign.VerifierCount(members, verificationPercent))
	old := 1 / (2 * keptRounds * trainers)
	young := old + 1/(2*newestRounds*trainers)
	misses := math.Pow(missed(members, verificationPercent, gang, young), newestRounds) *
		math.Pow(missed(members, verificationPercent, gang, old), keptRounds-newestRounds)
	return 1 - misses
}

// missed is how probable it is that no honest auditor of a round draws what each of them draws with
// probability p: over how many of the members that train nothing are honest.
func missed(members, verificationPercent, gang int, p float64) float64 {
	verifiers, sum := assign.VerifierCount(members, verificationPercent), 0.0
	for honest := range verifiers + 1 {
		exactly := AtLeast(honest, members, members-gang, verifiers)
		exactly.Sub(exactly, AtLeast(honest+1, members, members-gang, verifiers))
		share, _ := exactly.Float64()
		sum += share * math.Pow(1-p, float64(honest))
	}
	return sum
}

// Ejected returns the probability that who cheats in every step is ejected before it has been there
// for so many rounds, by audits of honest members alone: in each round each of them draws one of its
// results as often as one of every other member.
func Ejected(members, verificationPercent, gang, rounds int) float64 {
	p := 1 - missed(members, verificationPercent, gang, 1/float64(members))
	return 1 - math.Pow(1-p, float64(max(0, rounds-roundsToEject)))
}

// roundsToEject are those of the audit, of the drawing of the jury and of its votes.
const roundsToEject = 3

// RoundsToEject returns after how many rounds Ejected is at least sure; 0: never.
func RoundsToEject(members, verificationPercent, gang int, sure float64) int {
	p := 1 - missed(members, verificationPercent, gang, 1/float64(members))
	if !(p > 0) {
		return 0
	}
	return roundsToEject + within(p, sure)
}

// within returns in how many rounds what happens in each with probability p has happened with
// probability sure.
func within(p, sure float64) int { return int(math.Ceil(math.Log1p(-sure) / math.Log1p(-p))) }
