package odds

import (
	"math"
	"math/big"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Ever returns the probability that an event with probability p in one round happens at least once
// in the given number of independent rounds.
func Ever(p *big.Rat, rounds int) float64 {
	single, _ := p.Float64()
	return -math.Expm1(float64(rounds) * math.Log1p(-single))
}

// Jury contains the probabilities that a coalition has enough jurors of a jury.
type Jury struct {
	Members, Coalition int
	Size, Needed       int
	Convicts           *big.Rat // in a trial of a colluding member against an honest member, the coalition decides
	Blocks             *big.Rat // in a trial of a colluding member, the others prevent its conviction
	Lax                *big.Rat // the same if a tenth of the honest members cannot judge
}

// JuryOf returns the odds of a jury drawn from all members except the accused and the accuser. One
// of these belongs to the coalition.
func JuryOf(members, coalition int) Jury {
	size := min(members-2, coordinator.MaxJury)
	needed := (11*size + 19) / 20
	absent := (members - 1 - coalition + 9) / 10
	return Jury{
		members, coalition, size, needed,
		atLeast(needed, members-2, coalition-1, size),
		atLeast(size-needed+1, members-2, coalition-1, size),
		atLeast(size-needed+1, members-2, coalition-1+absent, size),
	}
}

// Members that do not train draw a result to audit from these rounds: half of the time from the
// newest rounds, otherwise from all kept rounds.
const (
	newestRounds = 2
	keptRounds   = 12
)

// Audited returns the probability that a result is ever audited by an honest member. Its trainer
// belongs to a coalition of the given size, whose audits report nothing. Every trainer has a batch.
// The probability is close to 1 − exp(−h·v/(1−v)), where h is the share of honest members and v the
// share of members that do not train.
func Audited(members, verificationPercent, coalition int) float64 {
	trainers := float64(members - assign.VerifierCount(members, verificationPercent))
	old := 1 / (2 * keptRounds * trainers)
	young := old + 1/(2*newestRounds*trainers)
	misses := math.Pow(missed(members, verificationPercent, coalition, young), newestRounds) *
		math.Pow(missed(members, verificationPercent, coalition, old), keptRounds-newestRounds)
	return 1 - misses
}
