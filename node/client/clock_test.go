package client

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/clocktest"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
)

// TestHostClockJumps sets the clock of a host in the middle of a round, once to an earlier and once to
// a later time. In practice this happens only at a restart, because a running host follows the
// monotonic clock. The run ends as always, with all members.
func TestHostClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour} {
		t.Run(fmt.Sprint(jump), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ahead atomic.Int64
				w := newWorldAt(t, clienttest.Config(3), 100*time.Millisecond, func() uint64 {
					return uint64(time.Now().Add(time.Duration(ahead.Load())).UnixMilli())
				})
				all := []*member{w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)}
				w.reach(4, coordinator.RoundTrain)
				time.Sleep(150 * time.Millisecond)
				begun := time.Now()
				ahead.Store(int64(jump))
				w.reachEpoch(1)
				if s := w.host.State(); len(s.Epoch.Clients) != len(all) || len(s.Epoch.Exited) != 0 {
					t.Errorf("%d members are in the next epoch, and %d have left", len(s.Epoch.Clients), len(s.Epoch.Exited))
				}
				finishEqual(w, all...)
				if took := time.Since(begun); took > 10*time.Minute {
					t.Errorf("the run took %v", took)
				}
			})
		})
	}
}

// TestMemberClockJumps sets the clock of a member's machine in the middle of a round. Durations
// follow the monotonic clock: the run takes as long as without a jump, all members stay, and no
// member is accused. The same holds without a monotonic clock.
func TestMemberClockJumps(t *testing.T) {
	run := func(t *testing.T, jump time.Duration, monotonic bool) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			var ahead atomic.Int64
			jumps := func(o *options) {
				o.prepare = func(n *Node) {
					n.tasks.Runtime.(*goroutines).clock = func() time.Time {
						now := clocktest.Jump(time.Now(), time.Duration(ahead.Load()))
						if !monotonic {
							now = now.Round(0)
						}
						return now
					}
				}
			}
			w := newWorld(t, clienttest.Config(3))
			all := []*member{w.launch(0, jumps), w.launch(1, nil), w.launch(2, nil)}
			w.reach(4, coordinator.RoundTrain)
			time.Sleep(150 * time.Millisecond)
			begun := time.Now()
			ahead.Store(int64(jump))
			w.reachEpoch(1)
			if s := w.host.State(); len(s.Epoch.Clients) != len(all) || len(s.Epoch.Exited) != 0 {
				t.Errorf("%d members are in the next epoch, and %d have left", len(s.Epoch.Clients), len(s.Epoch.Exited))
			}
			finishEqual(w, all...)
			checkNobodyAccused(t, w, all)
			took = time.Since(begun)
		})
		return took
	}
	usual := run(t, 0, true)
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour} {
		t.Run(fmt.Sprint(jump), func(t *testing.T) {
			for _, monotonic := range []bool{true, false} {
				if took := run(t, jump, monotonic); took < usual-2*time.Second || took > usual+2*time.Second {
					t.Errorf("the run took %v, without a jump %v; monotonic %v", took, usual, monotonic)
				}
			}
		})
	}
}

// reachEpoch waits until the members of an epoch train.
func (w *world) reachEpoch(epoch uint32) {
	w.t.Helper()
	w.until(fmt.Sprintf("epoch %d", epoch), func(s *coordinator.State) bool {
		return s.Progress.Epoch >= epoch && s.RunState == coordinator.RoundTrain
	})
}
