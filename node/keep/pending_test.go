package keep

import (
	"os"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// lastCooldown is the end of a run whose last round was that step.
func lastCooldown(step uint32) *coordinator.State {
	s := stateAfter(step, coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Step: step - 3})
	s.RunState = coordinator.Cooldown
	s.Config.TotalSteps, s.Config.CooldownTime = step, 10_000
	return s
}

// TestFinalModelIsOnTheDiskBeforeItIsReported, and is found there by the next process, with the facts
// that everybody else writes.
func TestFinalModelIsOnTheDiskBeforeItIsReported(t *testing.T) {
	b, m := newBench(t.TempDir(), 0), modelOf(9)
	s := lastCooldown(9)
	b.Take(m)
	s.Config.TotalSteps++
	if !b.Ahead(s) || len(b.queue) != 0 {
		t.Fatal("a model that the others train on with is written before it is recorded")
	}
	s.Config.TotalSteps--
	for range 2 {
		if b.Ahead(s) || len(b.queue) != 1 {
			t.Fatalf("the report does not wait, or %d are written", len(b.queue))
		}
	}
	b.work()
	if !b.Ahead(s) || !b.Busy() {
		t.Error("the report waits on, or nothing is left to do")
	}
	if newBench(b.Folder.Dir, 0).Holds(s.Model.Checkpoint) {
		t.Error("another model is found")
	}
	next := newBench(b.Folder.Dir, 0) // this one was killed
	if !next.Holds(recorded(m)) {
		t.Fatal("the next process does not find the model")
	}
	facts, err := checkpoint.ReadFacts(next.Folder.Checkpoint(9))
	if err != nil || facts.Epoch != 2 || facts.DataIndex != 36 || facts.Step != 9 {
		t.Errorf("facts %+v, %v", facts, err)
	}
}

// TestPendingModelGetsItsPlace when the run has recorded it, and goes when it recorded another.
func TestPendingModelGetsItsPlace(t *testing.T) {
	for _, ours := range []bool{true, false} {
		b, m := newBench(t.TempDir(), 0), modelOf(9)
		s := lastCooldown(9)
		b.Take(m)
		b.Ahead(s)
		s.RunState, s.Model.Checkpoint = coordinator.Finished, recorded(m)
		if !ours {
			s.Model.Checkpoint.Digest[0] ^= 1
		}
		b.SaveAgreed(s)
		if len(b.queue) != 1 {
			t.Fatal("the model has its place before it is written")
		}
		b.work()
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

// TestSlowDiskDelaysTheReportOnly: it does not prevent it.
func TestSlowDiskDelaysTheReportOnly(t *testing.T) {
	b, m := newBench(t.TempDir(), 0), modelOf(9)
	s := lastCooldown(9)
	b.Take(m)
	for passed, want := range map[time.Duration]bool{0: false, 4999 * time.Millisecond: false, 5 * time.Second: true} {
		b.now = time.Unix(1000, 0)
		b.pending = pending{}
		b.Ahead(s)
		b.now = b.now.Add(passed)
		if got := b.Ahead(s); got != want {
			t.Errorf("after %v: %v", passed, got)
		}
	}
}
