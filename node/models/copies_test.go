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
