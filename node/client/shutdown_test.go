package client

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
)

// submissions is a backend that records submitted actions.
type submissions struct {
	env.Backend
	actions []coordinator.Action
}

func (s *submissions) Submit(_ context.Context, a coordinator.Action) error {
	s.actions = append(s.actions, a)
	return nil
}

// TestInterruptEndsTheWaitForAHungDisk checks a client whose run is over and whose disk does not
// accept the last checkpoint. After an interrupt it ends within seconds, and reports the models
// that are not saved. A slow disk gets the time that it needs.
func TestInterruptEndsTheWaitForAHungDisk(t *testing.T) {
	for name, test := range map[string]struct {
		answers time.Duration // after the interrupt; zero: never
		saved   uint32
	}{
		"it never answers":  {saved: 6},
		"it answers slowly": {answers: 2 * time.Second, saved: 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(2))
				answer := make(chan struct{})
				var log journal
				hangs := false
				hung := w.launch(0, func(o *options) {
					o.CheckpointDir = filepath.Join(w.dir, "hung")
					log.keeps(o)
					o.DiskHangs = func() { hangs = true }
					o.Saved = func(_ string, f checkpoint.Facts) {
						if f.Step == 9 {
							<-answer
						}
					}
				})
				other := w.launch(1, nil)
				finishEqual(w, other)
				time.Sleep(time.Minute)
				select {
				case <-hung.done:
					t.Fatalf("the client ended without an interrupt: %v", hung.err)
				default:
				}
				if len(log.lines("level=WARN", "unsaved_steps=")) != 1 {
					t.Error("the client does not report why it waits")
				}
				hung.cancel()
				begun := time.Now()
				if test.answers > 0 {
					time.AfterFunc(test.answers, func() { close(answer) })
				}
				hung.wait()
				if took := time.Since(begun); took > 5*time.Second || !errors.Is(hung.err, context.Canceled) {
					t.Errorf("the client with the hung disk ended %v after the interrupt: %v", took, hung.err)
				}
				said := log.lines("level=ERROR", "unsaved_steps=")
				if (test.answers == 0) != (len(said) == 1) || hangs != (test.answers == 0) {
					t.Errorf("the disk hangs: %v, reported %q", hangs, said)
				}
				if test.answers == 0 && (!strings.Contains(said[0], "unsaved_steps=[9]") || !strings.Contains(said[0], "newest_saved_step=6")) {
					t.Errorf("reported %q", said)
				}
				if test.answers == 0 {
					close(answer)
				}
			})
		})
	}
}

// TestInterruptLeavesAComputation checks that an interrupted client does not wait for a training
// that does not end.
func TestInterruptLeavesAComputation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		end, begun, computes := make(chan struct{}), make(chan struct{}), false
		hung := w.launch(0, func(o *options) {
			o.trainer.OnTrain = func(step uint32, _ assign.BatchID) {
				if step == 2 {
					close(begun)
					<-end
				}
			}
			o.Computes = func() { computes = true }
		})
		other := w.launch(1, nil)
		<-begun
		hung.cancel()
		since := time.Now()
		hung.wait()
		if took := time.Since(since); took > defaultLeaveTimeout+time.Second || !errors.Is(hung.err, context.Canceled) || !computes {
			t.Errorf("the client ended %v after the interrupt: %v; Computes was called: %v", took, hung.err, computes)
		}
		close(end)
		other.crash()
	})
}
