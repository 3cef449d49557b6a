package check

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// claims checks that the state contains the claims of an accepted witness.
func (c *Checker) claims(s *coordinator.State, from coordinator.ClientID, a coordinator.WitnessRound) {
	round := s.CurrentRound()
	if round == nil {
		return // other checks find this
	}
	kept := slices.ContainsFunc(round.Witnesses, func(w coordinator.Witness) bool {
		return round.Members[w.Member] == from && w.Claim == a.Claim
	})
	if !kept {
		c.Violate(ClaimsKept, "the round does not contain the claim of %s, %+v, of step %d", c.NameOf(from), a.Claim, round.Step)
	}
}

// learned checks the published loss of a completed round.
func (c *Checker) learned(s *coordinator.State, step uint32) {
	round := s.RoundOfStep(step)
	if round == nil {
		return
	}
	var honest []uint32
	for i := range round.Witnesses {
		w := &round.Witnesses[i]
		if w.Claim.Loss != 0 && c.run.Cast.Of(round.Members[w.Member]).Honest() {
			honest = append(honest, uint32(w.Claim.Loss))
		}
	}
	shown := round.Losses()
	if 2*len(honest) <= shown.Count {
		return
	}
	if minimum, maximum := slices.Min(honest), slices.Max(honest); shown.Median < minimum || shown.Median > maximum || minimum < 2000 || maximum > 2150 {
		c.Violate(ClaimsKept, "step %d has a median loss of %d, but honest witnesses claim %d to %d", step, shown.Median, minimum, maximum)
	}
}
