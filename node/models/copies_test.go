package models

import (
	"fmt"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// copyAfter returns a copy of the model after a step.
func copyAfter(step uint32) Copy {
	return Copy{Recorded: coordinator.Recorded{Step: step, Digest: [32]byte{byte(step)}}, Facts: checkpoint.Facts{Step: step}}
}

// TestIntermediateCheckpointsAreDue checks that members whose intermediate checkpoints do not agree
// try again at the same steps.
func TestIntermediateCheckpointsAreDue(t *testing.T) {
	s := &coordinator.State{RunState: coordinator.RoundTrain, Config: coordinator.Config{RoundsPerEpoch: 60}}
	s.Epoch.StartStep = 11
	c := &Copies{}
	var due []uint32
	for step := uint32(11); step < 40; step++ {
		if c.Due(s, step) {
			due = append(due, step)
		}
		if step == 22 {
			s.Epoch.Commit.Step = 22
		}
	}
	if got := fmt.Sprint(due); got != "[13 16 22 25 28 34]" {
		t.Errorf("due after %v", got)
	}
	if !c.Due(s, 22) {
		t.Error("a slower member still copies after the agreement")
	}
	c.hashing = true
	if c.Due(s, 46) {
		t.Error("a second copy is taken while the first is hashed")
	}
}

// TestLeaversAreAnsweredSeldom checks that members take an intermediate checkpoint after the step
// that a leaving member reported, but only one in commit_every_rounds rounds, even if a member
// leaves and comes back in every round.
func TestLeaversAreAnsweredSeldom(t *testing.T) {
	s := &coordinator.State{RunState: coordinator.RoundTrain, Config: coordinator.Config{RoundsPerEpoch: 60}}
	s.Epoch.StartStep = 1
	s.Epoch.Commit.Step = 3
	s.Epoch.Clients = make([]coordinator.Client, 2)
	c := &Copies{}
	hostile := &s.Epoch.Clients[1]
	var due []uint32
	for step := uint32(4); step < 12; step++ {
		hostile.State, hostile.Report.Step = coordinator.Healthy, step
		if step != 6 && step != 9 && c.Due(s, step) {
			t.Errorf("a member that stays is answered after step %d", step)
		}
		hostile.State = coordinator.Withdrawn
		if c.asked(s, step) {
			due = append(due, step)
			c.Hashed(time.Time{}, c.Hash(s, step, checkpoint.Snapshot{}), false)
		}
	}
	if got := fmt.Sprint(due); got != "[4 7 10]" {
		t.Errorf("answered after %v", got)
	}
}

// TestIntermediateCheckpointsAreKept checks that the two newest intermediate checkpoints are kept.
// The run may agree on either, and may do so after a third is taken.
func TestIntermediateCheckpointsAreKept(t *testing.T) {
	s := &coordinator.State{RunState: coordinator.RoundTrain}
	s.Epoch.StartStep, s.Progress.Step = 5, 11
	c := &Copies{}
	for step := uint32(5); step <= 10; step++ {
		c.Add(copyAfter(step))
	}
	s.Epoch.Commit = c.copies[1].Recorded
	c.Trim(time.Time{}, s, false)
	var kept []uint32
	for _, p := range c.copies {
		kept = append(kept, p.Step)
	}
	if got := fmt.Sprint(kept); got != "[6 9 10]" {
		t.Errorf("kept %v", got)
	}
}

// TestCopiesOfAForgottenFuture checks that copies of forgotten steps in memory are dropped. They
// are not reported when the run reaches their steps again.
func TestCopiesOfAForgottenFuture(t *testing.T) {
	s := &coordinator.State{RunState: coordinator.RoundTrain}
	s.Epoch.StartStep, s.Progress.Step = 5, 8
	c := &Copies{}
	for _, step := range []uint32{6, 9} {
		c.Add(copyAfter(step))
	}
	c.Trim(time.Time{}, s, false)
	s.Progress.Step = 10
	if got, ok := c.Unreported(s, &coordinator.Client{}); !ok || got.Step != 6 || c.Has(9) {
		t.Errorf("reports %+v, %v", got, ok)
	}
}
