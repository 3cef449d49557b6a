package client

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/handover"
)

// TestCommitPointsAreDue wants members whose commit points are not agreed on to try at the same steps.
func TestCommitPointsAreDue(t *testing.T) {
	s := &coordinator.State{RunState: coordinator.RoundTrain, Config: coordinator.Config{RoundsPerEpoch: 60}}
	s.Epoch.StartStep = 11
	c := &commitPoints{}
	var due []uint32
	for step := uint32(11); step < 40; step++ {
		if c.isDue(s, step) {
			due = append(due, step)
		}
		if step == 22 {
			s.Epoch.Commit.Step = 22
		}
	}
	if got := fmt.Sprint(due); got != "[13 16 22 25 28 34]" {
		t.Errorf("due after %v", got)
	}
	if !c.isDue(s, 22) {
		t.Error("a slower member takes none where others agreed already")
	}
	c.busy = true
	if c.isDue(s, 46) {
		t.Error("a second one is taken while one is hashed")
	}
}

// TestCommitPointsAreKept wants the two newest kept: the run may agree on either, and may do so when a
// third is there.
func TestCommitPointsAreKept(t *testing.T) {
	s := &coordinator.State{RunState: coordinator.RoundTrain}
	s.Epoch.StartStep = 5
	c := &commitPoints{}
	for step := uint32(5); step <= 10; step++ {
		c.models = append(c.models, commitPoint{Recorded: coordinator.Recorded{Step: step, Digest: [32]byte{byte(step)}}})
	}
	s.Epoch.Commit = c.models[1].Recorded
	c.trim(s, &handover.Models{})
	var kept []uint32
	for _, p := range c.models {
		kept = append(kept, p.Step)
	}
	if got := fmt.Sprint(kept); got != "[6 9 10]" {
		t.Errorf("kept %v", got)
	}
}

// TestAllDie kills all clients, or all but one, at one moment: at most one distance of commit points is
// lost, whether they keep their models on disks or in the memory of who is left.
func TestAllDie(t *testing.T) {
	for name, test := range map[string]struct {
		step  uint32
		phase coordinator.RunState
		left  int
		disks bool
	}{
		"all, training":                 {7, coordinator.RoundTrain, 0, true},
		"all, in the last round":        {12, coordinator.RoundTrain, 0, true},
		"all, in cooldown":              {13, coordinator.Cooldown, 0, true},
		"three of four, training":       {7, coordinator.RoundTrain, 1, false},
		"three of four, last round":     {12, coordinator.RoundTrain, 1, false},
		"three of four, in cooldown":    {13, coordinator.Cooldown, 1, false},
		"three of four, with their own": {7, coordinator.RoundTrain, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, epochs(4))
				change := func(i int) func(o *options) {
					return func(o *options) {
						o.Backend = hesitant{o.Backend}
						if test.disks {
							o.CheckpointDir = filepath.Join(w.dir, fmt.Sprint("disk", i))
						}
					}
				}
				var members []*member
				for i := range 4 {
					members = append(members, w.launch(i, change(i)))
				}
				w.reach(test.step, test.phase)
				time.Sleep(time.Millisecond)
				for _, m := range members[test.left:] {
					m.crash()
				}
				w.until("the epoch is over", func(s *coordinator.State) bool { return s.RunState == coordinator.WaitingForMembers })
				s := w.host.State()
				t.Logf("%d rounds lost: the model is of step %d, the next one is %d", lost(&s), s.Model.Checkpoint.Step, s.Progress.Step)
				if lost(&s) > 1 {
					t.Errorf("%d rounds are lost: the model is of step %d, the next one is %d", lost(&s), s.Model.Checkpoint.Step, s.Progress.Step)
				}
				recorded := s.Model.Checkpoint.Step
				for i := test.left; i < 4; i++ {
					members[i] = w.launch(i, change(i))
				}
				w.until("the next epoch", func(s *coordinator.State) bool { return s.RunState == coordinator.RoundTrain })
				if got := w.host.State(); got.Model.Checkpoint.Step != recorded {
					t.Errorf("the run went on from the model of step %d, recorded was %d", got.Model.Checkpoint.Step, recorded)
				}
				finishEqual(w, members...)
			})
		})
	}
}

// TestCopiesDoNotFillTheDisk has a member whose model differs from the others', after each step anew: what it
// copies is never agreed on, and goes when there is more of it.
func TestCopiesDoNotFillTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, epochs(4))
		dir := filepath.Join(w.dir, "disk")
		others := []*member{w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)}
		w.launch(3, func(o *options) {
			o.CheckpointDir, o.trainer.Corrupt = dir, func(uint32) bool { return true }
		})
		for _, step := range []uint32{6, 12, 18, 24} {
			w.reach(step, coordinator.RoundTrain)
			copies, err := filepath.Glob(filepath.Join(dir, "*-commit*"))
			if err != nil || len(copies) == 0 || len(copies) > 4 {
				t.Errorf("in step %d the disk has %v, %v", step, copies, err)
			}
		}
		finishEqual(w, others...)
	})
}
