package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// TestStallingPeers checks a run with more stalling members than slots for fetches. The results of
// all other members still count.
func TestStallingPeers(t *testing.T) {
	const honest, downloads = 7, 2
	const stalling = downloads + 1
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(honest + stalling)
		config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = honest+stalling, honest+stalling
		config.TotalSteps = 3
		w := newWorld(t, config)
		bad := map[identity.ID]bool{}
		for i := range stalling {
			bad[clienttest.Key(honest+i).ID()] = true
		}
		w.hub.Stall = func(_, to identity.ID) bool { return bad[to] } // they also stall each other
		var members []*member
		for i := range honest + stalling {
			m := w.launch(i, func(o *options) {
				o.Downloads = downloads
				o.trainer.Duration = time.Second // but the stalling members are faster
				if bad[o.Key.ID()] {
					o.trainer.Duration = time.Millisecond
				}
			})
			if !bad[m.id] {
				members = append(members, m)
			}
		}
		finishEqual(w, members...)
		for _, m := range members {
			if lost := all[event.Desynchronised](m); len(lost) != 0 {
				t.Errorf("desynchronised: %+v", lost)
			}
			applied := all[event.Applied](m)
			if len(applied) != 3 {
				t.Errorf("applied %d rounds, want 3", len(applied))
			}
			for _, a := range applied {
				if a.Counted != honest {
					t.Errorf("step %d: %d results counted, want the results of %d members", a.Step, a.Counted, honest)
				}
			}
		}
	})
}

// TestLoadEndsWithTheRun checks a holder that never finishes a part of the model. A client that
// loads from it ends with the run, and does not delay a pause, whether or not it received the state
// of the pause.
func TestLoadEndsWithTheRun(t *testing.T) {
	for name, hidden := range map[string]func(s *coordinator.State) bool{
		"the pause is seen": func(*coordinator.State) bool { return false },
		"it is not":         func(s *coordinator.State) bool { return s.RunState == coordinator.Paused },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { loadEndsWithTheRun(t, hidden) })
		})
	}
}

func loadEndsWithTheRun(t *testing.T, hidden func(s *coordinator.State) bool) {
	config := clienttest.Config(2)
	config.WarmupTime = 20_000
	w := newWorld(t, config)
	late := clienttest.Key(2).ID()
	w.hub.Stall = func(from, _ identity.ID) bool { return from == late }
	a, b := w.launch(0, nil), w.launch(1, nil)
	w.until("second epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 1 && s.RunState == coordinator.RoundTrain })
	c := w.launch(2, func(o *options) { o.Backend = blink(w.ctx, o.Backend, hidden) })
	w.until("last epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 2 && s.RunState == coordinator.Warmup })
	w.until("it is a member", func(s *coordinator.State) bool { _, ok := s.Member(coordinator.ClientID(late)); return ok })
	time.Sleep(time.Second)
	if err := w.host.Apply(coordinator.SetPaused{Paused: true}); err != nil {
		t.Fatal(err)
	}
	w.until("pause", func(s *coordinator.State) bool { return s.RunState == coordinator.Paused })
	if err := w.host.Apply(coordinator.Close{}); err != nil {
		t.Fatal(err)
	}
	w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
	ended := time.Now()
	for _, m := range []*member{a, b, c} {
		m.wait()
		if m.err != nil {
			t.Errorf("client %s: %v", m.id.Short(), m.err)
		}
	}
	if took := time.Since(ended); took > 2*time.Second {
		t.Errorf("the clients ended %v after the run", took)
	}
}

// cramped is a network without memory for payloads larger than a limit.
type cramped struct {
	env.Network
	limit uint64
}

func (c *cramped) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	if size > c.limit {
		return nil, fmt.Errorf("fetch of %d bytes: %w", size, env.ErrNoRoom)
	}
	return c.Network.Fetch(ctx, hash, size, holders)
}

// TestNoRoom checks a client without memory for the model, or for a result. It ends and reports a
// remedy once. The other clients continue.
func TestNoRoom(t *testing.T) {
	for subject, limit := range map[string]uint64{"model": 4, "results": 60} { // sizes in the test: 8, 27 and 84 bytes
		t.Run(subject, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(3))
				a, b, d := w.launch(0, nil), w.launch(1, nil), w.launch(3, nil)
				w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 })
				var said journal
				c := w.launch(2, func(o *options) {
					o.Network = &cramped{o.Network, limit}
					said.keeps(o)
				})
				c.wait()
				if warned := len(said.lines("level=WARN", "result_bytes=", "--max-blob-memory to at least 1 MiB", "--blob-dir")); (warned > 0) != (subject == "results") {
					t.Errorf("warned %d times of results", warned)
				}
				if !errors.Is(c.err, env.ErrNoRoom) || !strings.Contains(c.err.Error(), "--max-blob-memory") {
					t.Errorf("ended with %v", c.err)
				}
				if failed := all[event.Failed](c); len(failed) != 1 {
					t.Errorf("reported %d times", len(failed))
				}
				finishEqual(w, a, b, d)
			})
		})
	}
}
