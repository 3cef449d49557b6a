package client

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// everyRound has members take a commit point after every round.
const everyRound = `{"CommitEveryRounds": 1}`

// TestReturnIntoARoundThatNeedsThem kills two of three members as a round begins, when the model after the round before
// is a commit point, and starts them again: without them the round has no quorum, and what they begin from is newer than
// what any quorum has said so far. They witness that round all the same, and its results count.
func TestReturnIntoARoundThatNeedsThem(t *testing.T) {
	for name, test := range map[string]struct{ lag, round uint32 }{
		"lag 1":                          {1, 15},
		"lag 1, an epoch's second round": {1, 12},
		"lag 1, the first epoch's":       {1, 2},
		"lag 1, the last round":          {1, 20},
		"lag 2":                          {2, 15},
		"lag 2, an epoch's third round":  {2, 13},
		"lag 2, the first epoch's":       {2, 3},
		"lag 2, the last round":          {2, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clienttest.Config(3)
				config.RoundsPerEpoch, config.TotalSteps = 10, 30
				w := newWorld(t, config, []byte(everyRound)...)
				change := func(i int) func(o *options) {
					return func(o *options) {
						large(o)
						o.trainer.Lag, o.trainer.Duration = test.lag, time.Second
						o.CheckpointDir = filepath.Join(w.dir, fmt.Sprint("saved ", i))
					}
				}
				a, b, c := w.launch(0, change(0)), w.launch(1, change(1)), w.launch(2, change(2))
				w.reach(test.round, coordinator.RoundTrain)
				w.until("its commit point", func(s *coordinator.State) bool {
					return s.Epoch.Commit.Step >= test.round-test.lag || s.Progress.Step > test.round
				})
				if s := w.host.State(); s.Progress.Step != test.round {
					t.Fatalf("the commit point of step %d came in round %d", s.Epoch.Commit.Step, s.Progress.Step)
				}
				for _, m := range []*member{b, c} { // the host waits for who lost its connection
					m.net.Close()
					m.backend.Cut()
				}
				b.wait()
				c.wait()
				begun := time.Now()
				b, c = w.launch(1, change(1)), w.launch(2, change(2))
				w.until("the round is over", func(s *coordinator.State) bool { return s.Progress.Step > test.round })
				if took := time.Since(begun); took > 10*time.Second {
					t.Errorf("the round took %v after the kill", took)
				}
				finishEqual(w, a, b, c)
				for _, e := range all[event.Applied](a) {
					if e.Step == test.round && e.Counted == 0 {
						t.Errorf("nothing of round %d counts", e.Step)
					}
				}
				for _, m := range []*member{a, b, c} {
					if lost := all[event.Desynchronised](m); len(lost) > 0 {
						t.Errorf("desynchronised: %+v", lost)
					}
				}
			})
		})
	}
}
