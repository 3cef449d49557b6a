package odds

import (
	"math"

	"github.com/psyche-go/psyche/core/assign"
)

// missed returns the probability that all honest auditors of a round miss a result that each of
// them draws with probability p. It sums over the number of honest members that do not train.
func missed(members, verificationPercent, coalition int, p float64) float64 {
	verifiers, sum := assign.VerifierCount(members, verificationPercent), 0.0
	for honest := range verifiers + 1 {
		exactly := atLeast(honest, members, members-coalition, verifiers)
		exactly.Sub(exactly, atLeast(honest+1, members, members-coalition, verifiers))
		share, _ := exactly.Float64()
		sum += share * math.Pow(1-p, float64(honest))
	}
	return sum
}

// Ejected returns the probability that a member that cheats in every step is ejected within the
// given number of rounds, if only the honest members that do not train audit. In each round, each
// of them audits one member, drawn with equal probabilities.
func Ejected(members, verificationPercent, coalition, rounds int) float64 {
	p := 1 - missed(members, verificationPercent, coalition, 1/float64(members))
	return 1 - math.Pow(1-p, float64(max(0, rounds-roundsToEject)))
}

// roundsToEject is the number of rounds for the audit, the drawing of the jury, and its votes.
const roundsToEject = 3

// RoundsToEject returns the number of rounds after which Ejected is at least sure; 0: never.
func RoundsToEject(members, verificationPercent, coalition int, sure float64) int {
	p := 1 - missed(members, verificationPercent, coalition, 1/float64(members))
	if !(p > 0) {
		return 0
	}
	return roundsToEject + within(p, sure)
}

// within returns the number of rounds after which an event with probability p per round has happened
// at least once with probability sure.
func within(p, sure float64) int { return int(math.Ceil(math.Log1p(-sure) / math.Log1p(-p))) }
