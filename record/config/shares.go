package config

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// enoughSequences is the number of sequences per member above which rounding the shares costs little.
const enoughSequences = 16

// checkShares refuses shares by speed in a run with audits.
func checkShares(t *table, c coordinator.Config) {
	if c.SharesBySpeed && c.VerificationPercent > 0 {
		t.fail("shares_by_speed", "is true, but verification_percent is %d: audits do not support shares by speed yet, because a slow auditor cannot repeat the batch of a fast member in time; set shares_by_speed = false, or verification_percent = 0", c.VerificationPercent)
	}
}

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
