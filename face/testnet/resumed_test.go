package testnet

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// TestResumedRun checks the reported model with which a run resumes. It is an error if no folder
// has the newest model.
func TestResumedRun(t *testing.T) {
	digest := [32]byte{0xab}
	state := func(kind coordinator.CheckpointKind, uploads ...coordinator.Upload) *coordinator.State {
		s := &coordinator.State{RunID: "run", OriginStep: 1, Uploads: uploads}
		s.Progress.Step = 31
		s.Model.Checkpoint = coordinator.Checkpoint{Kind: kind, Step: 20, Digest: digest}
		return s
	}
	save := func(step uint32, digest string) string {
		dir := t.TempDir()
		facts := checkpoint.Facts{RunID: "run", Step: step, Digest: digest}
		folder := filepath.Join(dir, "run-step20")
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, checkpoint.FactsFile), facts.Encode(), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	committed := state(coordinator.CheckpointLocal)
	committed.Epoch.Commit = coordinator.Recorded{Step: 20, Digest: digest}
	other := strings.Repeat("0", 64)
	recorded := "ab" + other[2:]
	upload := coordinator.Upload{Step: 20, Digest: digest, Place: coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"}}
	for name, test := range map[string]struct {
		state   *coordinator.State
		folder  string
		refused bool
	}{
		"nothing was recorded": {state(coordinator.CheckpointLocal), save(20, other), false},
		"on a disk":            {state(coordinator.CheckpointP2P), save(20, recorded), false},
		"while its epoch ran":  {committed, save(20, recorded), false},
		"uploaded":             {state(coordinator.CheckpointP2P, upload), save(12, other), false},
		"another of that step": {state(coordinator.CheckpointP2P), save(20, other), true},
		"an older one":         {state(coordinator.CheckpointP2P), save(12, other), true},
	} {
		s := &resumedRun{state: test.state}
		s.look("client-1", test.folder)
		golden.Message(t, name, errors.New(s.String()))
		if err := s.check(true); err != nil {
			t.Errorf("%s: refused although the loss is accepted: %v", name, err)
		}
		err := s.check(false)
		if test.refused {
			golden.Message(t, name+", refused", err)
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
