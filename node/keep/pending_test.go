package keep

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// cooldownAfter returns the state of the run in the Cooldown after a step.
func cooldownAfter(step uint32) *coordinator.State {
	s := stateAfter(step, coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Step: step - 3})
	s.RunState = coordinator.Cooldown
	s.Config.TotalSteps, s.Config.CooldownTime = 2*step, 10_000
	return s
}

// TestModelIsOnTheDiskBeforeItIsReported checks that a model is on the disk before it is reported,
// and that the next process finds it there, with the facts that all members write.
func TestModelIsOnTheDiskBeforeItIsReported(t *testing.T) {
	b, m := newBench(t.TempDir(), 0), modelOf(9)
	s := cooldownAfter(9)
	b.now = time.Unix(1000, 0)
	b.Take(m)
	for range 2 {
		if b.Ahead(s) || len(b.queue) != 1 {
			t.Fatalf("the report does not wait, or %d are written", len(b.queue))
		}
	}
	b.work()
	if !b.Ahead(s) || !b.Busy() {
		t.Error("the report still waits, or the saver is not busy")
	}
	if newBench(b.Folder.Dir, 0).Holds(s.Model.Checkpoint) {
		t.Error("a different model is found")
	}
	next := newBench(b.Folder.Dir, 0) // simulates a killed process
	if !next.Holds(recorded(m)) {
		t.Fatal("the next process does not find the model")
	}
	facts, err := checkpoint.ReadFacts(next.Folder.Checkpoint(9))
	if err != nil || facts.Epoch != 2 || facts.DataIndex != 36 || facts.Step != 9 {
		t.Errorf("facts %+v, %v", facts, err)
	}
}

// TestPendingModelGetsItsFinalName checks that a pending model gets its final name if the run
// records it, and is removed if the run records a different one.
func TestPendingModelGetsItsFinalName(t *testing.T) {
	for _, ours := range []bool{true, false} {
		b, m := newBench(t.TempDir(), 0), modelOf(9)
		s := cooldownAfter(9)
		b.Take(m)
		b.Ahead(s)
		s.RunState, s.Model.Checkpoint = coordinator.Finished, recorded(m)
		if !ours {
			s.Model.Checkpoint.Digest[0] ^= 1
		}
		b.SaveAgreed(s)
		if len(b.queue) != 1 {
			t.Fatal("the model has its final name before it is written")
		}
		b.work()
		if ours && len(b.queue) != 1 {
			t.Fatal("the model does not get its final name after it is written")
		}
		b.SaveAgreed(s)
		b.work()
		if b.Busy() || b.Err() != nil {
			t.Errorf("busy %v, %v", b.Busy(), b.Err())
		}
		entries, err := os.ReadDir(b.Folder.Dir)
		if err != nil || ours && (len(entries) != 1 || entries[0].Name() != "test-run-step9") || !ours && len(entries) != 0 {
			t.Errorf("the run's own: %v; the folder has %v, %v", ours, entries, err)
		}
	}
}

// TestSlowDiskDelaysTheReportOnly checks that a slow disk delays the report but does not prevent
// it, and makes an epoch only slightly longer, unless it is the last one.
func TestSlowDiskDelaysTheReportOnly(t *testing.T) {
	for name, test := range map[string]struct {
		last         bool
		epoch, limit time.Duration
	}{
		"a short epoch":      {false, 3 * time.Second, 30 * time.Millisecond},
		"an epoch":           {false, 5 * time.Minute, 3 * time.Second},
		"a long epoch":       {false, 5 * time.Hour, 5 * time.Second},
		"a short last epoch": {true, 3 * time.Second, 5 * time.Second},
	} {
		b, m := newBench(t.TempDir(), 0), modelOf(9)
		s := cooldownAfter(9)
		if test.last {
			s.Config.TotalSteps = 9
		}
		b.Take(modelOf(6))
		b.now = b.now.Add(test.epoch)
		b.Take(m)
		if b.Ahead(s) {
			t.Errorf("%s: reported at once", name)
		}
		b.now = b.now.Add(test.limit - time.Millisecond)
		if b.Ahead(s) {
			t.Errorf("%s: reported after %v", name, test.limit-time.Millisecond)
		}
		if b.now = b.now.Add(time.Millisecond); !b.Ahead(s) {
			t.Errorf("%s: not reported after %v", name, test.limit)
		}
	}
}

// TestHungDiskHasAtMostTwoModelsWaiting checks a disk that does not answer for many epochs. Each
// report waits for its maximum time, at most two models wait for the disk, and the newest is saved
// once the disk answers.
func TestHungDiskHasAtMostTwoModelsWaiting(t *testing.T) {
	b := newBench(filepath.Join(t.TempDir(), "checkpoints"), 0)
	b.now = time.Unix(1000, 0)
	for step := uint32(3); step <= 30; step += 3 {
		m, s := modelOf(step), cooldownAfter(step)
		b.now = b.now.Add(time.Hour)
		b.Take(m)
		if b.Ahead(s) {
			t.Errorf("step %d is reported at once", step)
		}
		if b.now = b.now.Add(5 * time.Second); !b.Ahead(s) {
			t.Errorf("step %d is never reported", step)
		}
		b.SaveAgreed(stateAfter(step, recorded(m)))
		if len(b.writing) > maxSaves || len(b.queue) > maxSaves {
			t.Fatalf("after step %d %d models wait for the disk", step, len(b.writing))
		}
	}
	newest := stateAfter(30, recorded(modelOf(30)))
	for range 3 {
		b.work()
		b.SaveAgreed(newest)
	}
	if !newBench(b.Folder.Dir, 0).Holds(newest.Model.Checkpoint) || b.Busy() || b.Err() != nil {
		t.Errorf("the newest is missing, busy %v, %v", b.Busy(), b.Err())
	}
	entries, err := os.ReadDir(b.Folder.Dir)
	if err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), pendingSuffix) }) {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}
