package client

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// TestSlowTrainer checks a trainer that cannot finish within a round. Its training is stopped, none
// of its results counts, and it is dropped in each epoch.
func TestSlowTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(3))
		a, b := w.launch(0, nil), w.launch(1, nil)
		var own atomic.Int64
		c := w.launch(2, func(o *options) {
			o.trainer.Duration = time.Minute
			o.trainer.OnApply = func(_ uint32, counted bool) {
				if counted {
					own.Add(1)
				}
			}
		})
		finishEqual(w, a, b)
		c.wait()
		if c.err != nil {
			t.Error(c.err)
		}
		if own.Load() != 0 || len(all[event.Trained](c)) != 0 {
			t.Errorf("%d own results counted", own.Load())
		}
	})
}

// TestDataOutage checks a data provider that fails at first.
func TestDataOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		var failures atomic.Int64
		a := w.launch(0, func(o *options) {
			o.Data = clienttest.Data{Err: func(assign.BatchID) error {
				if failures.Add(1) <= 3 {
					return clienttest.ErrFake
				}
				return nil
			}}
		})
		b := w.launch(1, nil)
		finishEqual(w, a, b)
		if trained := all[event.Trained](a); len(trained) != 9 {
			t.Errorf("trained %d rounds", len(trained))
		}
	})
}

// TestWrongData checks that a client whose data stays wrong ends with the reason.
func TestWrongData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(1))
		a := w.launch(0, func(o *options) {
			o.Data = clienttest.Data{Err: func(assign.BatchID) error { return tokens.ErrTokenRange }}
		})
		a.wait()
		if !errors.Is(a.err, tokens.ErrTokenRange) || len(all[event.Failed](a)) != 1 {
			t.Errorf("run ended with %v", a.err)
		}
	})
}

// TestCheckpointThatCannotBeSaved checks that the run ends with an error that names the folder.
func TestCheckpointThatCannotBeSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(1))
		a := w.launch(0, func(o *options) { o.CheckpointDir = "/dev/null/here" })
		a.wait()
		if a.err == nil || len(all[event.Failed](a)) != 1 {
			t.Errorf("run ended with %v", a.err)
		}
	})
}
