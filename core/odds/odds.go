package odds

import (
	"math/big"

	"github.com/psyche-go/psyche/core/assign"
)

// atLeast returns the probability that a round has the given minimum number of dishonest witnesses,
// if faulty of the members are dishonest and the witnesses are drawn from all members.
func atLeast(least, members, faulty, witnesses int) *big.Rat {
	sum, ways := new(big.Int), new(big.Int)
	for k := max(least, 0); k <= min(faulty, witnesses); k++ {
		if witnesses-k > members-faulty {
			continue
		}
		ways.Mul(new(big.Int).Binomial(int64(faulty), int64(k)), new(big.Int).Binomial(int64(members-faulty), int64(witnesses-k)))
		sum.Add(sum, ways)
	}
	return new(big.Rat).SetFrac(sum, new(big.Int).Binomial(int64(members), int64(witnesses)))
}

// Harm contains the probabilities that a coalition gets enough seats in a committee.
type Harm struct {
	Members, Faulty, Witnesses int
	Quorum                     int
	Blocks                     *big.Rat // in one round, the honest witnesses have no quorum
	Captures                   *big.Rat // in one round, the coalition has a quorum
}

// Of returns the harm that dishonest members can do in a round. faulty is their number. The round
// draws the given number of witnesses from all members.
func Of(members, faulty, witnesses int) Harm {
	witnesses = min(witnesses, members)
	quorum := assign.Quorum(witnesses)
	return Harm{
		members, faulty, witnesses, quorum,
		atLeast(witnesses-quorum+1, members, faulty, witnesses),
		atLeast(quorum, members, faulty, witnesses),
	}
}

// MostFaulty returns the largest number of dishonest members that a run tolerates: fewer than a
// third.
func MostFaulty(members int) int { return max(0, (members-1)/3) }
