package config

import (
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/core/odds"
)

// rareCapture is the number of rounds in which dishonest members may control the committee of
// witnesses less than once without a warning.
const rareCapture = 10_000

// committeeWarning returns a warning if dishonest members, fewer than a third of InitMinClients,
// are a quorum of a round's witnesses too often. Otherwise it returns an empty string.
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
	message := fmt.Sprintf("witness_nodes = %d: if %d of %d members are dishonest, they are %d of a round's %d witnesses in one round of %.0f, and all other members lose the work of that epoch",
		c.WitnessNodes, liars, members, assign.Quorum(witnesses), witnesses, max(1, 1/p))
	if witnesses == min(members, coordinator.MaxWitnesses) {
		return message
	}
	return message + "; 0 lets all members witness, 32 at most"
}

// absenceWarning returns a warning if a round's quorum needs all of its witnesses although the run
// has more members. Otherwise it returns an empty string.
func absenceWarning(c coordinator.Config) string {
	witnesses := int(c.WitnessNodes)
	if witnesses == 0 || witnesses >= int(c.InitMinClients) || assign.Quorum(witnesses) < witnesses {
		return ""
	}
	return fmt.Sprintf("witness_nodes = %d: a round counts only if all of its witnesses are there; the loss of one costs all members the round and ends the epoch; 3 witnesses tolerate the loss of one, 0 lets all members witness, %d at most",
		witnesses, coordinator.MaxWitnesses)
}

// auditsWarning returns a warning if a run with audits starts with too few members to have an
// auditor. Auditors do not train. Otherwise it returns an empty string.
func auditsWarning(c coordinator.Config) string {
	members, percent := int(c.InitMinClients), int(c.VerificationPercent)
	if percent == 0 || assign.VerifierCount(members, percent) > 0 {
		return ""
	}
	message := fmt.Sprintf("verification_percent = %d: audits are off while there are as few as init_min_clients = %d members, none of whom has time for them", percent, members)
	least := 2
	for least < coordinator.MaxClients && assign.VerifierCount(least, percent) == 0 {
		least++
	}
	return fmt.Sprintf("%s; from %d members on one has, or set at least %d", message, least, min(100, (100+members-1)/members))
}

// probationWarning returns a warning if audits find fewer than half of the new members that cheat
// in every step before their results count. It applies to a run with audits and a probation.
// Otherwise it returns an empty string. The file does not determine whether the run is permissioned.
func probationWarning(c coordinator.Config) string {
	members, percent, steps := int(c.InitMinClients), int(c.VerificationPercent), int(min(c.ProbationSteps, 1<<20))
	if percent == 0 || steps == 0 {
		return ""
	}
	p := odds.Ejected(members, percent, 0, steps)
	if p >= 0.5 || assign.VerifierCount(members, percent) == 0 {
		return ""
	}
	return fmt.Sprintf("probation_steps = %d, where anybody may join: of newcomers that cheat in every step %.0f in 100 are ejected before their results count, with %d members of whom %d verify; half are after %d steps, 95 in 100 after %d",
		c.ProbationSteps, 100*p, members, assign.VerifierCount(members, percent), odds.RoundsToEject(members, percent, 0, 0.5), odds.RoundsToEject(members, percent, 0, 0.95))
}
