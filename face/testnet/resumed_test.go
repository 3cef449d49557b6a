package testnet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// TestResumedRun says with which model a run goes on, and refuses where the newest is in no folder.
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
	upload := coordinator.Upload{Step: 20, Digest: digest, Place: coordinator.Place{Kind: coordinator.CheckpointGcs, Repo: "bucket"}}
	for name, test := range map[string]struct {
		state   *coordinator.State
		folder  string
		want    string
		refused bool
	}{
		"nothing was recorded": {state(coordinator.CheckpointLocal), save(20, other), "the model that it began with: no other was recorded; what was counted in rounds 1 to 30 is", false},
		"on a disk":            {state(coordinator.CheckpointP2P), save(20, recorded), "of step 20, from the disk of client-1; what was counted in rounds 21 to 30 is", false},
		"while its epoch ran":  {committed, save(20, recorded), "of step 20, from the disk of client-1; what was counted in rounds 21 to 30 is", false},
		"uploaded":             {state(coordinator.CheckpointP2P, upload), save(12, other), "of step 20, as a client reported at", false},
		"another of that step": {state(coordinator.CheckpointP2P), save(20, other), "of step 20, which is in no client's folder", true},
		"an older one":         {state(coordinator.CheckpointP2P), save(12, other), "of step 20, which is in no client's folder", true},
	} {
		s := &resumedRun{state: test.state}
		s.look("client-1", test.folder)
		if got := s.String(); !strings.Contains(got, test.want) {
			t.Errorf("%s: %q does not say %q", name, got, test.want)
		}
		if err := s.check(true); err != nil {
			t.Errorf("%s: refused although the loss is accepted: %v", name, err)
		}
		err := s.check(false)
		if (err != nil) != test.refused || err != nil && (!strings.Contains(err.Error(), "--accept-loss") || !strings.Contains(err.Error(), test.folder)) {
			t.Errorf("%s: %v, want a refusal: %v", name, err, test.refused)
		}
	}
}
