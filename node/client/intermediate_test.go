package client

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// death is a moment at which clients are killed.
type death struct {
	moment
	left  int // number of survivors of four
	disks bool
}

// TestAllDie kills all clients, or all except one, at one moment. At most the steps since the last
// intermediate checkpoint are lost, whether the models are on disks or in the memory of the
// survivor.
func TestAllDie(t *testing.T) {
	training, last := moment{8, coordinator.RoundTrain, time.Millisecond}, moment{12, coordinator.RoundTrain, time.Millisecond}
	cooldown := moment{13, coordinator.Cooldown, time.Millisecond}
	for name, test := range map[string]death{
		"all, training":                 {training, 0, true},
		"all, in the last round":        {last, 0, true},
		"all, in cooldown":              {cooldown, 0, true},
		"three of four, training":       {training, 1, false},
		"three of four, last round":     {last, 1, false},
		"three of four, in cooldown":    {cooldown, 1, false},
		"three of four, with their own": {training, 1, true},
	} {
		for often, p := range promises {
			t.Run(name+", "+often, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { allDie(t, test, p) })
			})
		}
	}
}

func allDie(t *testing.T, test death, p promise) {
	w := p.world(t, epochs(4))
	change := func(i int) func(o *options) {
		return func(o *options) {
			p.change(o)
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
	time.Sleep(test.after)
	for _, m := range members[test.left:] {
		m.crash()
	}
	w.until("the epoch is over", func(s *coordinator.State) bool { return s.RunState == coordinator.WaitingForMembers })
	s := w.host.State()
	t.Logf("%d rounds lost: the model is of step %d, the next one is %d", lost(&s), s.Model.Checkpoint.Step, s.Progress.Step)
	if lost(&s) > p.every {
		t.Errorf("%d rounds are lost: the model is of step %d, the next one is %d", lost(&s), s.Model.Checkpoint.Step, s.Progress.Step)
	}
	recorded := s.Model.Checkpoint.Step
	for i := test.left; i < 4; i++ {
		members[i] = w.launch(i, change(i))
	}
	w.until("the next epoch", func(s *coordinator.State) bool { return s.RunState == coordinator.RoundTrain })
	if got := w.host.State(); got.Model.Checkpoint.Step != recorded {
		t.Errorf("the run continued from the model of step %d, recorded was %d", got.Model.Checkpoint.Step, recorded)
	}
	finishEqual(w, members...)
	checkNobodyAccused(t, w, members)
}

// TestCopiesDoNotFillTheDisk checks a member whose model differs from the others' after each step.
// The run never agrees on its copies, and they are removed when there are more.
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
