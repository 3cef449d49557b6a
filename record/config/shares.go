package config

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

const (
	// enoughSequences is the number of sequences per member above which rounding the shares costs little.
	enoughSequences = 16
	// auditSlowdown is how many times slower than the fastest member some members may be that audit its batches.
	auditSlowdown = 4
	// auditRounds is the number of rounds for which a client continues an audit at least.
	auditRounds = 20
)

// sharesWarning returns a warning if the rounds of a run with shares by speed have few sequences for its
// members. Otherwise it returns an empty string.
func sharesWarning(c coordinator.Config) string {
	members, batch := int(c.InitMinClients), int(min(c.GlobalBatchSizeStart, c.GlobalBatchSizeEnd))
	if !c.SharesBySpeed || batch >= enoughSequences*members {
		return ""
	}
	return fmt.Sprintf("shares_by_speed = true: with init_min_clients = %d members, a round has %d sequences; shares are whole sequences, so have at least %d sequences (global_batch_size_start and global_batch_size_end), %d for each member",
		members, batch, enoughSequences*members, enoughSequences)
}

// sharedAuditsWarning returns a warning if slow members have little time for the audits of a run with shares by speed.
// Otherwise it returns an empty string.
func sharedAuditsWarning(c coordinator.Config) string {
	percent, least := int(c.VerificationPercent), 100*auditSlowdown/auditRounds
	if !c.SharesBySpeed || percent == 0 || percent >= least {
		return ""
	}
	return fmt.Sprintf("shares_by_speed = true: with verification_percent = %d percent, a member that is %d times slower than another one needs about %d rounds to audit one of its batches; have at least %d percent if the members have different speeds",
		percent, auditSlowdown, 100*auditSlowdown/percent, least)
}
