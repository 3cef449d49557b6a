package client

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

const testBulk = 16 << 10 // bytes; more than all results of a test run

// large makes the model of a client larger than the results of the run.
func large(o *options) {
	o.trainer.Bulk = testBulk
	o.Initial = func(context.Context, coordinator.Checkpoint) (checkpoint.Snapshot, error) {
		return clienttest.Bulky(clienttest.Model(), testBulk), nil
	}
}

// saving combines large with a separate checkpoint folder for the client.
func saving(w *world, name string, more ...func(o *options)) func(o *options) {
	return func(o *options) {
		large(o)
		o.CheckpointDir = filepath.Join(w.dir, name)
		for _, change := range more {
			change(o)
		}
	}
}

// traced records the applied steps.
type traced struct {
	mu    sync.Mutex
	steps []uint32
	own   int // own counted results until the model has caught up
}

func (tr *traced) record(o *options) {
	o.trainer.OnApply = func(step uint32, own bool) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.steps = append(tr.steps, step)
		if own && step <= 6 {
			tr.own++
		}
	}
}

func longer(clients uint16) coordinator.Config {
	config := clienttest.Config(clients)
	config.TotalSteps = 12
	return config
}

// crashAndReturn runs a client that is away from the second epoch's first round to its end, with
// the checkpoint that it saved after the first epoch. It returns the client's second life.
func crashAndReturn(t *testing.T, w *world, others, again func(o *options)) *member {
	a, b := w.launch(0, others), w.launch(1, others)
	c := w.launch(2, saving(w, "saved", others))
	w.until("second epoch", func(s *coordinator.State) bool { return s.Progress.Step == 4 && s.RunState == coordinator.RoundTrain })
	c.crash()
	w.until("the end of the epoch", func(s *coordinator.State) bool { return s.Progress.Step == 7 })
	back := w.launch(2, saving(w, "saved", again))
	finishEqual(w, a, b, back)
	for _, m := range []*member{a, b, back} {
		// The newest model, and the results of at most three epochs and the newest rounds.
		if blobs := m.net.BlobCount(); blobs > 2*(clienttest.Width+2)+9*3+3*3 {
			t.Errorf("client %s keeps %d blobs", m.id.Short(), blobs)
		}
	}
	return back
}

// TestCatchUpByResults checks that a killed client continues from its saved checkpoint.
func TestCatchUpByResults(t *testing.T) {
	for name, lag := range map[string]uint32{"lag 1": 1, "lag 2": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, longer(3))
				var trace traced
				late := func(o *options) { large(o); o.trainer.Lag = lag }
				back := crashAndReturn(t, w, late, func(o *options) { trace.record(o); o.trainer.Lag = lag })
				ready := all[event.Ready](back)
				if len(ready) == 0 || ready[0].Source != "results" || ready[0].Step != 6 || ready[0].Bytes == 0 || ready[0].Bytes >= testBulk {
					t.Fatalf("ready: %+v", ready)
				}
				if !slices.Equal(trace.steps, []uint32{4, 5, 6, 7, 8, 9, 10, 11, 12}) || trace.own != 0 {
					t.Errorf("applied %v, own results before the catch-up %d", trace.steps, trace.own)
				}
			})
		})
	}
}

// TestDamagedWeightsCatchUp checks that a client with damaged weights continues from the first
// model of the epoch, which it has saved.
func TestDamagedWeightsCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longer(3))
		a, b := w.launch(0, large), w.launch(1, large)
		c := w.launch(2, saving(w, "saved", func(o *options) {
			first := true
			o.trainer.Corrupt = func(step uint32) bool {
				damage := step == 5 && first
				first = first && !damage
				return damage
			}
		}))
		finishEqual(w, a, b, c)
		if len(all[event.Desynchronised](c)) != 1 {
			t.Errorf("desynchronised: %+v", all[event.Desynchronised](c))
		}
		if !slices.ContainsFunc(all[event.Ready](c), func(r event.Ready) bool { return r.Source == "results" }) {
			t.Errorf("ready: %+v", all[event.Ready](c))
		}
	})
}

// TestCutOffForAnEpoch checks that a client that is cut off for an epoch gets the counted results
// of the epoch once it reaches its peers again.
func TestCutOffForAnEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := longer(3)
		config.TotalSteps = 15
		w := newWorld(t, config)
		var mu sync.Mutex
		away, gone := false, clienttest.Key(2).ID()
		cut := func(from, to identity.ID) bool {
			mu.Lock()
			defer mu.Unlock()
			return away && (from == gone || to == gone)
		}
		set := func(to bool) { mu.Lock(); defer mu.Unlock(); away = to }
		w.hub.DropLink = cut
		w.hub.DropGossip = func(from, to identity.ID, _ []byte) bool { return cut(from, to) }
		a, b, c := w.launch(0, large), w.launch(1, large), w.launch(2, large)
		w.until("second epoch", func(s *coordinator.State) bool { return s.Progress.Step == 4 && s.RunState == coordinator.RoundTrain })
		set(true)
		w.until("its end", func(s *coordinator.State) bool { return s.Progress.Step == 7 })
		set(false)
		finishEqual(w, a, b, c)
		if len(all[event.Desynchronised](c)) > 0 || len(all[event.Ready](c)) != 5 {
			t.Errorf("ready: %+v, desynchronised: %+v", all[event.Ready](c), all[event.Desynchronised](c))
		}
	})
}

// reluctant is a network whose fetches of results time out, or fail for lack of room.
type reluctant struct {
	env.Network
	mu    sync.Mutex
	tries int
	full  bool
}

func (r *reluctant) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	r.mu.Lock()
	result := size == 84 && len(holders) > 0 && r.tries < 9 // bytes
	if result {
		r.tries++
	}
	r.mu.Unlock()
	switch {
	case !result:
		return r.Network.Fetch(ctx, hash, size, holders)
	case r.full:
		return nil, env.ErrNoRoom
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestResultsThatDoNotArriveLeaveTimeForTheModel checks that stalling holders of results, or lack
// of memory, cost only one attempt, and that the next attempt is within the same Warmup.
func TestResultsThatDoNotArriveLeaveTimeForTheModel(t *testing.T) {
	for name, full := range map[string]bool{"holders stall": false, "no room": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, longer(3))
				var network *reluctant
				begun := time.Now()
				back := crashAndReturn(t, w, large, func(o *options) {
					network = &reluctant{Network: o.Network, full: full}
					o.Network = network
				})
				ready := all[event.Ready](back)
				if len(ready) == 0 || ready[0].Source != "peers" || ready[0].Step != 6 {
					t.Errorf("ready after %v: %+v", time.Since(begun), ready)
				}
				if network.tries == 0 {
					t.Error("results were not requested")
				}
			})
		})
	}
}
