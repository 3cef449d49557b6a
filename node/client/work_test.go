package client

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
)

// inLoop calls do in the loop of a client, and waits for it.
func (m *member) inLoop(do func(n *Node)) {
	done := make(chan struct{})
	m.node.tasks.Run(func() func() { return func() { do(m.node); close(done) } })
	<-done
}

// TestEndsOfScopes checks when the work of a client becomes stale: when it loses its model, all work
// on it, and when it leaves its replica at the end of an epoch, only the work on that.
func TestEndsOfScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, epochs(3))
		a, others := w.launch(0, nil), []*member{w.launch(1, nil), w.launch(2, nil)}
		var trains, writes, hashes core.ID
		wanted := func(n *Node) [2]bool { return [2]bool{n.engine.Wanted(writes), n.engine.Wanted(hashes)} }
		cancelled := false
		w.reach(4, coordinator.RoundTrain)
		for trains == 0 {
			a.inLoop(func(n *Node) {
				if !n.engine.Idle() {
					return
				}
				trains = n.engine.Start(core.Train{}, func() { cancelled = true })
				writes, hashes = n.engine.Spawn(core.Write{}), n.engine.Spawn(core.Hash{})
				n.models.snapshotter.lent = keep.NewLent()
				n.desynchronise("the test says so")
				if n.engine.Done(trains) || !cancelled || wanted(n) != [2]bool{} || n.models.snapshotter.lent != nil {
					t.Errorf("after the loss of the model: cancelled %v, wanted %v", cancelled, wanted(n))
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		w.reach(10, coordinator.RoundTrain)
		a.inLoop(func(n *Node) { writes, hashes = n.engine.Spawn(core.Write{}), n.engine.Spawn(core.Hash{}) })
		w.reach(13, coordinator.RoundTrain)
		a.inLoop(func(n *Node) {
			if wanted(n) != [2]bool{false, true} {
				t.Errorf("in the next epoch: wanted %v", wanted(n))
			}
		})
		finishEqual(w, append(others, a)...)
	})
}

// careful signs announcements, and checks that the signing record of the step is on the disk.
type careful struct {
	env.Announcements
	t      *testing.T
	folder keep.Folder

	mu     sync.Mutex
	signed map[uint32]int
}

func (c *careful) Sign(a wire.ResultAnnouncement) []byte {
	if step, found, err := c.folder.NewestSigned(a.Run); !found || step != a.Step || err != nil {
		c.t.Errorf("signs a result of step %d, recorded is %d, %v", a.Step, step, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signed[a.Step]++
	return c.Announcements.Sign(a)
}

// TestSignedAfterItsRecord checks that a client records a step on its disk before it signs a result,
// and signs one result of each step, also if it loses its model during a training.
func TestSignedAfterItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, epochs(3))
		var c *careful
		a := w.launch(0, func(o *options) {
			o.CheckpointDir = filepath.Join(w.dir, "disk")
			c = &careful{
				Announcements: env.Signed{Key: o.Key}, t: t, signed: map[uint32]int{},
				folder: keep.Folder{Dir: o.CheckpointDir, RunID: clienttest.RunID, ID: o.Key.ID()},
			}
			o.Announcements = c
		})
		others := []*member{w.launch(1, nil), w.launch(2, nil)}
		w.reach(4, coordinator.RoundTrain)
		a.inLoop(func(n *Node) { n.desynchronise("the test says so") })
		finishEqual(w, append(others, a)...)
		sent := all[event.ResultSent](a)
		if len(sent) == 0 || len(sent) != len(c.signed) {
			t.Errorf("announced %d results, signed results of %d steps", len(sent), len(c.signed))
		}
		for step, count := range c.signed {
			if count != 1 {
				t.Errorf("signed %d results of step %d", count, step)
			}
		}
	})
}

// TestStaleResultsAreDropped checks that the loop drops results of work whose scope ended while it
// ran, and takes others.
func TestStaleResultsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := &env.Tasks{Work: t.Context()}
		own := newGoroutines(tasks)
		tasks.Runtime = own
		e := &engine{Jobs: &core.Jobs{}, tasks: tasks}
		e.speculation = &speculation{}
		for _, stale := range []bool{false, true} {
			took, dropped := 0, 0
			do := func(context.Context) int { return 3 }
			take, drop := func(n int) { took += n }, func(n int) { dropped += n }
			start(e, core.Apply{}, do, take, drop)
			spawn(tasks, e.Jobs, core.Write{}, do, take, drop)
			spawn(tasks, e.Jobs, core.Load{}, do, take, nil)
			if stale {
				e.leave()
			}
			for range 3 {
				(<-own.posts)()
			}
			if want := map[bool]int{false: 9, true: 3}[stale]; took != want || took+dropped != 9 || !e.Idle() || e.speculation != nil {
				t.Errorf("stale %v: took %d, dropped %d", stale, took, dropped)
			}
		}
		own.tasks.Wait()
	})
}
