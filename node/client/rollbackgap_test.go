package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// cutOff is a network that receives nothing from peers while it is cut.
type cutOff struct {
	env.Network
	cut atomic.Bool
}

func (c *cutOff) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	if c.cut.Load() {
		return nil, errors.New("cut off")
	}
	return c.Network.Fetch(ctx, hash, size, holders)
}

// cutMembers contains four members. The first can be cut off. Each has a separate folder.
type cutMembers struct {
	one     *cutOff
	members []*member
	launch  func(i int) *member
}

// launchCut launches the members. A lag of 0 means the default.
func launchCut(w *world, lag uint32) *cutMembers {
	c := &cutMembers{one: &cutOff{}}
	c.launch = func(i int) *member {
		return w.launch(i, func(o *options) {
			o.CheckpointDir, o.trainer.Lag = filepath.Join(w.dir, fmt.Sprint("disk", i)), lag
			if i == 0 {
				c.one.Network, o.Network = o.Network, c.one
			}
		})
	}
	for i := range 4 {
		c.members = append(c.members, c.launch(i))
	}
	return c
}

// loseOthers kills all members except the first. They come back when the epoch is over and the
// first member is no longer cut off.
func (c *cutMembers) loseOthers(w *world) {
	for _, m := range c.members[1:] {
		m.crash()
	}
	w.until("the epoch is over", func(s *coordinator.State) bool { return s.RunState == coordinator.WaitingForMembers })
	c.one.cut.Store(false)
	for i := 1; i < 4; i++ {
		c.members[i] = c.launch(i)
	}
}

// TestSurvivorDoesNotWaitForLostResults checks a run in which all members but one die together with
// the counted results of a step that the survivor lacks. The run continues from the recorded model
// of the step before. The survivor does not wait for results that no member has and that are not in
// that model.
func TestSurvivorDoesNotWaitForLostResults(t *testing.T) {
	for _, lag := range []uint32{1, 2} {
		t.Run(fmt.Sprintf("lag %d", lag), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := epochs(4)
				config.RoundsPerEpoch, config.TotalSteps = 40, 12 // intermediate checkpoints after every second step: 4, but not 5
				config.MaxRoundTrainTime, config.WarmupTime = 60_000, 120_000
				w := newWorld(t, config)
				c := launchCut(w, lag)
				w.reach(5, coordinator.RoundTrain)
				c.one.cut.Store(true)
				w.reach(6, coordinator.RoundTrain)
				time.Sleep(time.Millisecond)
				c.loseOthers(w)
				began := time.Now()
				w.until("all are ready", func(s *coordinator.State) bool { return s.RunState == coordinator.RoundTrain })
				took := time.Since(began)
				if s := w.host.State(); len(s.RollbackGaps) == 0 || s.RollbackGaps[0].First > 5 {
					t.Fatalf("step 5 is not lost: rollback gaps %v", s.RollbackGaps)
				}
				if took > 10*time.Second {
					t.Errorf("the members waited for %v", took)
				}
				finishEqual(w, c.members...)
				for _, d := range all[event.Desynchronised](c.members[0]) {
					if strings.Contains(d.Reason, "from peers") {
						t.Errorf("desynchronised in step %d: %s", d.Step, d.Reason)
					}
				}
			})
		})
	}
}

// TestSurvivorTakesTheRecordedModelForLostResults checks a run in which all members but one die with
// the results of a recorded step that the survivor lacks. They come back with the model of that
// step. The survivor takes this model, and does not wait for the results for the maximum time of a
// round.
func TestSurvivorTakesTheRecordedModelForLostResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := epochs(4)
		config.RoundsPerEpoch, config.TotalSteps = 40, 12
		config.MaxRoundTrainTime, config.WarmupTime = 300_000, 300_000
		w := newWorld(t, config, []byte(`{"CommitEveryRounds": 1}`)...)
		c := launchCut(w, 0)
		w.reach(5, coordinator.RoundTrain)
		c.one.cut.Store(true)
		w.until("step 5 is recorded", func(s *coordinator.State) bool { return s.Epoch.Commit.Step >= 5 })
		c.loseOthers(w)
		began := time.Now()
		w.until("all are ready", func(s *coordinator.State) bool { return s.RunState == coordinator.RoundTrain })
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the members waited for %v", took)
		}
		if s := w.host.State(); s.Model.Checkpoint.Step < 5 {
			t.Errorf("the run continued from the model of step %d", s.Model.Checkpoint.Step)
		}
		finishEqual(w, c.members...)
		checkNobodyAccused(t, w, c.members)
	})
}
