package odds

import (
	"math/big"

	"github.com/psyche-go/psyche/core/assign"
)

// atLeast returns the probability that at least least of a round's witnesses are dishonest, if liars
// is the number of dishonest members and the witnesses are drawn from all members.
func atLeast(least, members, liars, witnesses int) *big.Rat {
	sum, ways := new(big.Int), new(big.Int)
	for k := max(least, 0); k <= min(liars, witnesses); k++ {
		if witnesses-k > members-liars {
			continue
		}
		ways.Mul(new(big.Int).Binomial(int64(liars), int64(k)), new(big.Int).Binomial(int64(members-liars), int64(witnesses-k)))
		sum.Add(sum, ways)
	}
	return new(big.Rat).SetFrac(sum, new(big.Int).Binomial(int64(members), int64(witnesses)))
}

// Harm contains the probabilities that a coalition gets enough seats in a committee.
type Harm struct {
	Members, Liars, Witnesses int
	Quorum                    int
	Blocks                    *big.Rat // in one round, the honest witnesses have no quorum
	Captures                  *big.Rat // in one round, the coalition has a quorum
}

// Of returns the harm that liars dishonest members can do, among members, in a round with witnesses
// witnesses.
func Of(members, liars, witnesses int) Harm {
	witnesses = min(witnesses, members)
	quorum := assign.Quorum(witnesses)
	return Harm{
		members, liars, witnesses, quorum,
		atLeast(witnesses-quorum+1, members, liars, witnesses),
		atLeast(quorum, members, liars, witnesses),
	}
}

// MostLiars returns the largest number of dishonest members that a run tolerates: fewer than a
// third.
func MostLiars(members int) int { return max(0, (members-1)/3) }
