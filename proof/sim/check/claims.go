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

// HonestHeldOut is the held-out loss that all honest members claim for their models.
const HonestHeldOut = 2100

// heldOut checks the published loss of a checkpoint on held-out data.
func (c *Checker) heldOut(s *coordinator.State) {
	dishonest := 0
	for _, m := range slices.Concat(s.Epoch.Clients, s.Epoch.Exited, s.Pending) {
		switch honest := c.run.Cast.Of(m.ID).Honest(); {
		case m.HeldOut == 0, m.HeldOut == HonestHeldOut:
		case honest:
			c.Violate(ClaimsKept, "%s claims a held-out loss of %d according to the state, want %d", c.NameOf(m.ID), m.HeldOut, HonestHeldOut)
		default:
			dishonest++
		}
	}
	if shown := s.HeldOut(); shown.Count > 2*dishonest && shown.Median != HonestHeldOut {
		c.Violate(ClaimsKept, "the checkpoint of step %d has a median held-out loss of %d, but all honest members claim %d", s.Model.Checkpoint.Step, shown.Median, HonestHeldOut)
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
