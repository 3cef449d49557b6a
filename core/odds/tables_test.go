package odds

import (
	"math"
	"math/big"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Ever returns how probable it is that something which happens in a round with probability p
// happens in one of many independent rounds.
func Ever(p *big.Rat, rounds int) float64 {
	single, _ := p.Float64()
	return -math.Expm1(float64(rounds) * math.Log1p(-single))
}

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
		atLeast(needed, members-2, gang-1, size),
		atLeast(size-needed+1, members-2, gang-1, size),
		atLeast(size-needed+1, members-2, gang-1+absent, size),
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
