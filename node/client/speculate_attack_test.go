package client

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// hiding makes a member send its result to one other member only.
type hiding struct {
	w      *world
	victim identity.ID

	mu  sync.Mutex
	bad identity.ID // member that hides its result now; zero: none
}

// hideFrom makes the network of a world hide results.
func hideFrom(w *world, victim identity.ID) *hiding {
	h := &hiding{w: w, victim: victim}
	w.hub.DropLink = h.hides
	w.hub.DropGossip = func(from, to identity.ID, _ []byte) bool { return h.hides(from, to) }
	return h
}

func (h *hiding) hides(from, to identity.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bad != (identity.ID{}) && (from == h.bad && to != h.victim || to == h.bad && from != h.victim)
}

// in hides the result of a member in a round.
func (h *hiding) in(step uint32, bad identity.ID) {
	h.w.t.Helper()
	set := func(bad identity.ID) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.bad = bad
	}
	h.w.until("a round", func(s *coordinator.State) bool {
		return s.Progress.Step == step && s.RunState == coordinator.RoundTrain
	})
	set(bad)
	h.w.until("the next one", func(s *coordinator.State) bool { return s.Progress.Step > step })
	set(identity.ID{})
}

// TestMispredictionCostsNoSeat checks a member that sends its result of one round to only one other
// member. A batch is one micro-batch, so a training cannot be stopped before its end. With a
// training of 20 s, a wrong speculation would make two results of the victim late, and the run
// would drop the victim. The victim therefore does not speculate. If its trainings are short, it
// speculates, and is still in time after a wrong speculation.
func TestMispredictionCostsNoSeat(t *testing.T) {
	for name, test := range map[string]struct {
		training time.Duration
		mistakes int
	}{"long": {20 * time.Second, 0}, "short": {1500 * time.Millisecond, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rounds = 9
				config := clienttest.Config(7)
				config.TotalSteps, config.RoundsPerEpoch, config.MaxRoundTrainTime = rounds, rounds, 60_000
				w := newWorld(t, config)
				h := hideFrom(w, clienttest.Key(0).ID())
				var members []*member
				for i := range 7 {
					members = append(members, w.launch(i, func(o *options) {
						o.trainer.Duration = 0
						o.trainer.OnTrain = func(uint32, assign.BatchID) { time.Sleep(test.training) }
						o.Backend = far{o.Backend, 200 * time.Millisecond}
					}))
				}
				h.in(4, clienttest.Key(6).ID())
				finishEqual(w, members...)
				for _, a := range all[event.Applied](members[0]) {
					if !a.OwnCounted || a.Counted != 7 && a.Step != 4 {
						t.Errorf("step %d: %d results count, including its own: %v", a.Step, a.Counted, a.OwnCounted)
					}
				}
				if m := members[0].node.engine.outlook.Mistakes; m != test.mistakes {
					t.Errorf("the victim mispredicted %d times, want %d", m, test.mistakes)
				}
			})
		})
	}
}
