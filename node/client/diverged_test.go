package client

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// TestCorruptedWeights damages the weights of one client. The witnesses' replica hash cannot reveal
// the damage, but the digest at the end of the epoch does.
func TestCorruptedWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(3))
		a, b := w.launch(0, nil), w.launch(1, nil)
		c := w.launch(2, func(o *options) { o.trainer.Corrupt = func(step uint32) bool { return step == 2 } })
		finishEqual(w, a, b, c)
		if lost := all[event.Desynchronised](c); len(lost) != 1 || lost[0].Epoch != 1 {
			t.Errorf("desynchronised: %+v", lost)
		}
		if ready := all[event.Ready](c); len(ready) != 3 || ready[1].Source != "peers" {
			t.Errorf("ready: %+v", ready)
		}
		if c.trainer.Loads() != 2 {
			t.Errorf("%d loads", c.trainer.Loads())
		}
	})
}

// TestDivergedReplica checks a client that applied a different set of results. Within a round its
// replica hash differs from the witnesses' replica hash.
func TestDivergedReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(3))
		a, b := w.launch(0, nil), w.launch(1, nil)
		launched := make(chan *member, 1)
		c := w.launch(2, func(o *options) {
			o.trainer.OnApply = func(step uint32, _ bool) {
				if step == 1 { // the loop waits for this call's report, so nothing else uses the hash
					m := <-launched
					m.node.rounds.replica.Hash[0] ^= 1
				}
			}
		})
		launched <- c
		finishEqual(w, a, b, c)
		lost := all[event.Desynchronised](c)
		if len(lost) != 1 || lost[0].Epoch != 0 || lost[0].Step > 3 {
			t.Errorf("desynchronised: %+v", lost)
		}
	})
}

// TestAllDesynchronise makes all clients lose their weights in the second epoch, without a copy on
// a disk. Each still has the first checkpoint of the epoch, and the run continues from there.
func TestAllDesynchronise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(3)
		config.TotalSteps = 12
		w := newWorld(t, config)
		members := []*member{w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)}
		w.until("second round of the second epoch", func(s *coordinator.State) bool {
			return s.Progress.Step == 5 && s.RunState == coordinator.RoundTrain
		})
		before := w.host.State().Model.Checkpoint
		var together sync.WaitGroup // without this, the last client could apply the round that ends when the others leave
		together.Add(len(members))
		for _, m := range members {
			m.node.tasks.Run(func() func() {
				return func() {
					together.Done()
					together.Wait()
					m.node.desynchronise("all of them")
				}
			})
		}
		w.until("they have a model again", func(s *coordinator.State) bool {
			return s.Epoch.StartStep > 5 && s.RunState == coordinator.RoundTrain
		})
		after := w.host.State() // they continue from the model that they reported in the round before
		if c := after.Model.Checkpoint; c.Step != before.Step+1 || len(after.RollbackGaps) != 1 || after.RollbackGaps[0].First != c.Step+1 {
			t.Errorf("the run continued from %+v with rollback gaps %+v, before was %+v", c, after.RollbackGaps, before)
		}
		for _, m := range members {
			if ready := all[event.Ready](m); len(ready) != 3 || ready[2].Source != "held" || ready[2].Digest != hexOf(after.Model.Checkpoint.Digest) {
				t.Errorf("ready: %+v", ready)
			}
		}
		finishEqual(w, members...)
	})
}

// TestMissedOutcome checks a member that receives nothing of the run for some rounds of a long
// epoch, like a member whose machine stands still. It recovers in the same epoch.
func TestMissedOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, epochs(4), []byte(everyThird)...)
		a, b, d := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		c := w.launch(3, func(o *options) {
			o.Backend = blink(w.ctx, o.Backend, func(s *coordinator.State) bool { return s.Progress.Step >= 3 && s.Progress.Step < 6 })
		})
		finishEqual(w, a, b, c, d)
		if lost := all[event.Desynchronised](c); len(lost) != 1 {
			t.Fatalf("desynchronised: %+v", lost)
		}
		if ready := all[event.Ready](c); len(ready) < 2 || ready[1].Epoch != 0 {
			t.Errorf("ready: %+v", ready)
		}
	})
}
