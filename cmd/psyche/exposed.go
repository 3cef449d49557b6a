package main

import (
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/record/config"
)

// hostMayReplace warns of a run without a main authority of its own.
const hostMayReplace = "without --main-authority the server's own key is the main authority: whoever reads host-key.json in --save-state-dir can pause the run and put other rules, another model and other data in their place; make a key with psyche keys new, keep it on another machine, and name it when the run begins: it cannot be changed later"

// fewAuditors is how many members should audit at least, so that rounds in which none of them is
// honest are rare.
const fewAuditors = 4

// openWarnings says what anybody can do to a run that anybody may join.
func openWarnings(run config.Run) []string {
	members, percent := int(run.Config.InitMinClients), int(run.Config.VerificationPercent)
	enough := (100*fewAuditors + members - 1) / members
	remedy := fmt.Sprintf("set it to %d for %d that audit, with so many", enough, fewAuditors)
	if enough > 50 {
		remedy = fmt.Sprintf("begin with %d members or more (init_min_clients), of whom %d audit", 2*fewAuditors, fewAuditors)
	}
	remedy += ", or let only keys that you chose join, with --permissioned"
	switch auditors := assign.VerifierCount(members, percent); {
	case percent == 0:
		return []string{"verification_percent = 0, and anybody may join: nobody looks whether the results of strangers are computed from their data; noise, copies and turned gradients count like honest work; " + remedy}
	case 0 < auditors && auditors < fewAuditors:
		return []string{fmt.Sprintf("verification_percent = %d, and anybody may join: of init_min_clients = %d members %d audit, and in the rounds in which those are strangers who cheat together nobody looks; %s", percent, members, auditors, remedy)}
	default: // of none that audit the file's own warnings tell
		return nil
	}
}
