package client

import (
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
)

// signed counts the results that all processes of a client sign.
type signed struct {
	env.Announcements
	mu     *sync.Mutex
	counts map[uint32]map[[32]byte]bool // blobs by step
}

func (s signed) Sign(a wire.ResultAnnouncement) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[a.Step] == nil {
		s.counts[a.Step] = make(map[[32]byte]bool)
	}
	s.counts[a.Step][a.Blob] = true
	return s.Announcements.Sign(a)
}

// TestReturnWithinTheEpoch kills one of three clients in round 10 of an epoch of 25 and starts it
// again. It trains in that epoch, its results count, all models are equal, and it never signs two
// results of one step.
func TestReturnWithinTheEpoch(t *testing.T) {
	for name, test := range map[string]struct {
		lag   uint32
		saves bool
		away  time.Duration
	}{
		"at once":                 {lag: 1, saves: true},
		"at once, without a disk": {lag: 1},
		"after a while":           {lag: 1, saves: true, away: 2 * time.Second},
		"with a lag of two":       {lag: 2, saves: true, away: time.Second},
		"in the first epoch":      {lag: 2, away: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clienttest.Config(3)
				config.RoundsPerEpoch, config.TotalSteps = 25, 50
				killed := uint32(35)
				if name == "in the first epoch" {
					killed = 10
				}
				w := newWorld(t, config)
				mu, counts := &sync.Mutex{}, make(map[uint32]map[[32]byte]bool)
				trained := map[uint32]time.Time{}
				change := func(o *options) {
					large(o)
					o.trainer.Lag, o.trainer.Duration = test.lag, 300*time.Millisecond
					if o.Key.ID() != clienttest.Key(2).ID() {
						return
					}
					o.trainer.OnTrain = func(step uint32, _ assign.BatchID) { mu.Lock(); defer mu.Unlock(); trained[step] = time.Now() }
					o.Announcements = signed{env.Signed{Key: o.Key}, mu, counts}
					if test.saves {
						o.CheckpointDir = filepath.Join(w.dir, "saved")
					}
				}
				a, b, c := w.launch(0, change), w.launch(1, change), w.launch(2, change)
				w.until("round 10", func(s *coordinator.State) bool {
					return s.Progress.Step == killed && s.RunState == coordinator.RoundTrain
				})
				time.Sleep(400 * time.Millisecond) // it may or may not have signed a result
				c.crash()
				died := time.Now()
				time.Sleep(test.away)
				back := w.launch(2, change)
				w.until("it trains again", func(s *coordinator.State) bool {
					mu.Lock()
					defer mu.Unlock()
					return trained[s.Progress.Step].After(died)
				})
				s := w.host.State()
				if s.Progress.Step > killed+14 {
					t.Errorf("the client trains again in step %d of the run", s.Progress.Step)
				}
				t.Logf("the client trains again after %v, %d rounds later", time.Since(died), s.Progress.Step-killed)
				finishEqual(w, a, b, back)
				if rejoined := all[event.Rejoined](back); len(rejoined) != 1 || rejoined[0].Epoch != s.Progress.Epoch {
					t.Errorf("rejoined: %+v", rejoined)
				}
				own := 0
				for _, e := range all[event.Applied](back) {
					if e.OwnCounted && e.Step <= (killed/25+1)*25 {
						own++
					}
				}
				if own < 3 {
					t.Errorf("%d of its results counted in the epoch to which it returned", own)
				}
				for step, blobs := range counts {
					if len(blobs) > 1 {
						t.Errorf("%d results of step %d are signed", len(blobs), step)
					}
				}
			})
		})
	}
}
