package testnet

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// resumedRun is the state of a run to resume, and the clients that have its model.
type resumedRun struct {
	state   *coordinator.State
	holders []string // clients whose folders have the newest recorded model
	others  []string // checkpoints of other steps in clients' folders
	chain   string   // position at which the run's chain resumes; empty: it is on a server
}

// newest returns the newest model that the run recorded, including intermediate checkpoints; Step
// 0: there is none.
func (run *resumedRun) newest() (r coordinator.Recorded) {
	if c := run.state.Model.Checkpoint; c.FromPeers() {
		r = coordinator.Recorded{Step: c.Step, Digest: c.Digest}
	}
	if commit := run.state.Epoch.Commit; commit.Step > r.Step {
		r = commit
	}
	return r
}

// look records which of the run's checkpoints a client has.
func (run *resumedRun) look(client, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // it has no checkpoint
	}
	recorded := run.newest()
	for _, entry := range entries {
		facts, err := checkpoint.ReadFacts(filepath.Join(dir, entry.Name()))
		switch {
		case err != nil || facts.RunID != run.state.RunID:
		case recorded.Step > 0 && facts.Step == recorded.Step && facts.Digest == hex.EncodeToString(recorded.Digest[:]):
			run.holders = append(run.holders, client)
		default:
			run.others = append(run.others, fmt.Sprintf("step %d in %s", facts.Step, filepath.Join(dir, entry.Name())))
		}
	}
}

// check returns an error if resuming would lose a recorded model.
func (run *resumedRun) check(acceptLoss bool) error {
	c := run.newest()
	if acceptLoss || c.Step == 0 || len(run.holders) > 0 || len(run.state.UploadsOf(c.Digest)) > 0 {
		return nil
	}
	beside := "no other checkpoint found"
	if len(run.others) > 0 {
		beside = "found: " + strings.Join(run.others, ", ")
	}
	return fmt.Errorf("the run's newest recorded model has step %d, but no client's folder contains it (%s): "+
		"the run would continue with an older model; restore the folder %s-step%d, or accept the loss with --accept-loss", c.Step, beside, run.state.RunID, c.Step)
}

// String describes the point at which the run resumes.
func (run *resumedRun) String() string {
	c, next := run.newest(), run.state.Progress.Step
	from, seen := "its initial model, because no later model was recorded", run.state.OriginStep-1
	if c.Step > 0 {
		seen = c.Step
		from = fmt.Sprintf("its newest recorded model, of step %d, which is in no client's folder", c.Step)
		switch uploads := run.state.UploadsOf(c.Digest); {
		case len(run.holders) > 0:
			from = fmt.Sprintf("its newest recorded model, of step %d, from the disk of %s", c.Step, strings.Join(run.holders, ", "))
		case len(uploads) > 0:
			from = fmt.Sprintf("its newest recorded model, of step %d, as a client reported at %s", c.Step, uploads[0].Place)
		}
	}
	text := fmt.Sprintf("the run continues with round %d, from %s", next, from)
	if seen+1 < next {
		text += fmt.Sprintf("; the training of rounds %d to %d is lost, because no checkpoint contains it", seen+1, next-1)
	}
	return text
}

// goOn resumes a run that was paused by an interruption.
func (n *network) goOn(ctx context.Context) error {
	if n.resumed == nil {
		return nil
	}
	if n.resumed.chain != "" {
		n.tell("%s", n.resumed.chain)
	}
	n.tell("%s", n.resumed)
	s := n.resumed.state
	if paused := s.RunState == coordinator.Paused; paused && !s.PendingResume || !paused && s.PendingPause {
		return n.setPaused(ctx, "resume")
	}
	return nil
}

// checkpointDir returns the folder of client i's checkpoints.
func (n *network) checkpointDir(i int) string { return filepath.Join(n.clientDir(i), "checkpoints") }
