package config

import (
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/core/odds"
)

// rareCapture is the threshold for a warning: dishonest members may control the committee of witnesses
// at most about once in this number of rounds.
const rareCapture = 10_000

// committeeWarning returns a warning if dishonest members, fewer than a third of InitMinClients, would
// too often be a quorum of a round's witnesses. Otherwise it returns an empty string.
func committeeWarning(c coordinator.Config) string {
	members := int(c.InitMinClients)
	witnesses := min(members, coordinator.MaxWitnesses)
	if c.WitnessNodes > 0 {
		witnesses = min(members, int(c.WitnessNodes))
	}
	faulty := odds.MostFaulty(members)
	harm := odds.Of(members, faulty, witnesses)
	p, _ := harm.Captures.Float64()
	if p*rareCapture < 1 {
		return ""
	}
	message := fmt.Sprintf("witness_nodes = %d: if %d of %d members are dishonest, they hold %d of a round's %d witness seats in about one round of %.0f, and then the other members lose the epoch's work",
		c.WitnessNodes, faulty, members, assign.Quorum(witnesses), witnesses, max(1, 1/p))
	if witnesses == min(members, coordinator.MaxWitnesses) {
		return message
	}
	return message + "; set 0 to let all members witness, up to 32"
}

// absenceWarning returns a warning if a round's quorum needs all of its witnesses although the run
// has more members. Otherwise it returns an empty string.
func absenceWarning(c coordinator.Config) string {
	witnesses := int(c.WitnessNodes)
	if witnesses == 0 || witnesses >= int(c.InitMinClients) || assign.Quorum(witnesses) < witnesses {
		return ""
	}
	return fmt.Sprintf("witness_nodes = %d: a round counts only if all of its witnesses are present; if one is missing, all members lose the round and the epoch ends; set 3 to tolerate one missing witness, or 0 to let all members witness, up to %d",
		witnesses, coordinator.MaxWitnesses)
}

// auditsWarning returns a warning if a run with audits starts with too few members for one of them to
// audit, since auditors do not train. Otherwise it returns an empty string.
func auditsWarning(c coordinator.Config) string {
	members, percent := int(c.InitMinClients), int(c.VerificationPercent)
	if percent == 0 || assign.VerifierCount(members, percent) > 0 {
		return ""
	}
	message := fmt.Sprintf("verification_percent = %d: with only init_min_clients = %d members, no member audits", percent, members)
	minimum := 2
	for minimum < coordinator.MaxClients && assign.VerifierCount(minimum, percent) == 0 {
		minimum++
	}
	return fmt.Sprintf("%s; choose at least %d members, or a percentage of at least %d", message, minimum, min(100, (100+members-1)/members))
}

// probationWarning returns a warning if more than half of the newcomers that cheat in every step are
// not detected before their results count. It applies to a run with audits and a probation. Otherwise
// it returns an empty string. The warning covers permissioned runs too, because the file does not
// contain that setting.
func probationWarning(c coordinator.Config) string {
	members, percent, steps := int(c.InitMinClients), int(c.VerificationPercent), int(min(c.ProbationSteps, 1<<20))
	if percent == 0 || steps == 0 {
		return ""
	}
	p := odds.Ejected(members, percent, 0, steps)
	if p >= 0.5 || assign.VerifierCount(members, percent) == 0 {
		return ""
	}
	return fmt.Sprintf("probation_steps = %d: if any client may join, %.0f in 100 newcomers that cheat in every step are ejected before their results count, in a run of %d members with %d auditors; half are ejected after %d steps, 95 in 100 after %d",
		c.ProbationSteps, 100*p, members, assign.VerifierCount(members, percent), odds.RoundsToEject(members, percent, 0, 0.5), odds.RoundsToEject(members, percent, 0, 0.95))
}
