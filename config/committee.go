package config

import (
	"fmt"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/odds"
)

// rareCapture is how often, in rounds, a committee of witnesses may be the liars' without a
// warning: once.
const rareCapture = 10_000

// committeeWarning says when fewer than a third of the members that an epoch needs have a quorum
// of a round's witnesses too often; empty when they do not.
func committeeWarning(c coordinator.Config) string {
	members := int(c.InitMinClients)
	witnesses := min(members, coordinator.MaxWitnesses)
	if c.WitnessNodes > 0 {
		witnesses = min(members, int(c.WitnessNodes))
	}
	liars := odds.MostLiars(members)
	harm := odds.Of(members, liars, witnesses)
	p, _ := harm.Captures.Float64()
	if p*rareCapture < 1 {
		return ""
	}
	what := fmt.Sprintf("witness_nodes = %d: if %d of %d members lie, %d of a round's %d witnesses do in one round of %.0f, and all others lose the work of that epoch",
		c.WitnessNodes, liars, members, assign.Quorum(witnesses), witnesses, max(1, 1/p))
	if witnesses == min(members, coordinator.MaxWitnesses) {
		return what
	}
	return what + "; 0 lets all members witness, 32 at most"
}
