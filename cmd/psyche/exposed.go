package main

import (
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/record/config"
)

// hostMayReplace is the warning for a run without a separate main authority.
const hostMayReplace = "the server's own key is the main authority: anyone who reads host-key.json in --save-state-dir can pause the run and replace its model; to prevent this, pass a key from another machine as --main-authority when the run begins"

// fewAuditors is the recommended minimum number of auditing members, so that rounds without an
// honest auditor are rare.
const fewAuditors = 4

// openWarnings returns warnings about what unknown clients can do in an open run.
func openWarnings(run config.Run) []string {
	members, percent := int(run.Config.InitMinClients), int(run.Config.VerificationPercent)
	enough := (100*fewAuditors + members - 1) / members
	remedy := fmt.Sprintf("set it to %d for %d auditors with this many members", enough, fewAuditors)
	if enough > 50 {
		remedy = fmt.Sprintf("begin with at least %d members (init_min_clients), of which %d audit", 2*fewAuditors, fewAuditors)
	}
	remedy += ", or admit only keys that you choose, with --permissioned"
	switch auditors := assign.VerifierCount(members, percent); {
	case percent == 0:
		return []string{"verification_percent = 0, and every key may join: no member checks the results of unknown clients; " + remedy}
	case 0 < auditors && auditors < fewAuditors:
		return []string{fmt.Sprintf("verification_percent = %d, and every key may join: with init_min_clients = %d, %d of the members audit; in rounds in which all auditors are colluding unknown clients, no honest member audits; %s", percent, members, auditors, remedy)}
	default: // without auditors, the file's own warnings apply
		return nil
	}
}
