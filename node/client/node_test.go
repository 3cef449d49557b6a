package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

func TestRunToTheEnd(t *testing.T) {
	for _, clients := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(clients), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(uint16(clients)))
				var members []*member
				for i := range clients {
					members = append(members, w.launch(i, func(o *options) {
						o.CheckpointDir, o.KeepCheckpoints = filepath.Join(w.dir, fmt.Sprint("saved", i)), 2
					}))
				}
				finishEqual(w, members...)
				checkWholeRun(t, members)
			})
		})
	}
}

// checkWholeRun checks the events of clients that took part in the whole run.
func checkWholeRun(t *testing.T, members []*member) {
	for i, m := range members {
		applied := all[event.Applied](m)
		if len(applied) != 9 {
			t.Errorf("client %d applied %d rounds", i, len(applied))
		}
		for step, a := range applied {
			if a.Step != uint32(step+1) || a.Counted != len(members) || len(a.Lost) != 0 || !a.OwnCounted {
				t.Errorf("client %d: %+v", i, a)
			}
		}
		if trained := all[event.Trained](m); len(trained) != 9 || trained[0].Tokens == 0 {
			t.Errorf("client %d trained %+v", i, trained)
		}
		if lost := all[event.Desynchronised](m); len(lost) != 0 {
			t.Errorf("client %d: %+v", i, lost)
		}
		saved := all[event.Checkpoint](m)
		if len(saved) != 3 {
			t.Fatalf("client %d saved %+v", i, saved)
		}
		for j, s := range saved {
			_, err := os.Stat(s.Dir)
			if (err == nil) != (j >= 1) { // the two newest are kept
				t.Errorf("client %d: checkpoint %+v: %v", i, s, err)
			}
		}
		// Exchanged blobs are dropped, except for the newest rounds and the model.
		if blobs := m.net.BlobCount(); blobs > 3*len(members)+1+clienttest.Width {
			t.Errorf("client %d keeps %d blobs", i, blobs)
		}
	}
}

// TestResultsAreAppliedTwoRoundsLater checks a lag of 2. A round is trained while the results of
// the round before are still arriving, and the end of an epoch leaves nothing behind. One client
// loses its seat and comes back in between.
func TestResultsAreAppliedTwoRoundsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(3)
		config.TotalSteps = 12
		w := newWorld(t, config)
		late := func(o *options) { o.trainer.Lag = 2 }
		a, b, c := w.launch(0, late), w.launch(1, late), w.launch(2, late)
		w.until("second epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 1 && s.Progress.Step > 5 })
		c.crash()
		w.until("another round", func(s *coordinator.State) bool { return s.Progress.Step > 6 })
		again := w.launch(2, late)
		finishEqual(w, a, b, again)
		for _, m := range []*member{a, b} {
			if lost := all[event.Desynchronised](m); len(lost) != 0 {
				t.Errorf("got %+v; want len(lost) == 0", lost)
			}
			checkLag(t, m, 2, 12)
		}
	})
}

// checkLag checks the order in which a client applied and trained.
func checkLag(t *testing.T, m *member, lag, last uint32) {
	applied, behind := uint32(0), 0
	for e, err := range event.Read(m.events) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := e.Body.(type) {
		case event.Applied:
			if applied++; e.Step != applied {
				t.Errorf("applied step %d, want %d", e.Step, applied)
			}
		case event.Trained:
			if e.Step > applied+lag {
				t.Errorf("trained step %d when %d was the newest applied", e.Step, applied)
			}
			if e.Step == applied+lag {
				behind++
			}
		}
	}
	if applied != last {
		t.Errorf("%d of %d steps are applied", applied, last)
	}
	if behind < int(last)/2 {
		t.Errorf("only %d steps were trained while results were on their way", behind)
	}
}

// firstHolders is a network that counts the first holder of each fetch.
type firstHolders struct {
	env.Network
	mu     sync.Mutex
	counts map[identity.ID]int
}

func (f *firstHolders) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	if size == 8 { // a part of the model
		f.mu.Lock()
		f.counts[holders[0]]++
		f.mu.Unlock()
	}
	return f.Network.Fetch(ctx, hash, size, holders)
}

func TestCrashAndReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(3)
		config.TotalSteps = 12
		w := newWorld(t, config)
		a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 && s.RunState == coordinator.RoundTrain })
		c.crash()
		if c.err == nil {
			t.Error("a client without a host continued")
		}
		w.until("the end of the epoch", func(s *coordinator.State) bool { return s.Progress.Step == 4 })
		asked := &firstHolders{counts: map[identity.ID]int{}}
		again := w.launch(2, func(o *options) { asked.Network, o.Network = o.Network, asked })
		finishEqual(w, a, b, again)
		ready := all[event.Ready](again)
		if len(ready) == 0 || ready[0].Source != "peers" || ready[0].Bytes == 0 {
			t.Errorf("ready: %+v", ready)
		}
		if len(all[event.Rejoined](again)) != 1 {
			t.Errorf("rejoined: %+v", all[event.Rejoined](again))
		}
		if asked.counts[a.id] == 0 || asked.counts[b.id] == 0 {
			t.Errorf("the model came from %v, want both holders", asked.counts)
		}
		lost := 0
		for _, applied := range all[event.Applied](a) {
			lost += len(applied.Lost)
		}
		if lost != 1 {
			t.Errorf("%d batches lost, want the one of the crashed client", lost)
		}
	})
}

func TestInterruptWithdraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		a, b := w.launch(0, nil), w.launch(1, nil)
		w.until("first round", func(s *coordinator.State) bool { return s.RunState == coordinator.RoundTrain })
		b.cancel()
		b.wait()
		if !errors.Is(b.err, context.Canceled) {
			t.Errorf("interrupted client: %v", b.err)
		}
		s := w.host.State()
		if client, ok := s.Member(coordinator.ClientID(b.id)); ok && client.State == coordinator.Healthy {
			t.Error("the interrupted client is still a member")
		}
		// A single member is not a quorum, so its epoch may already be over. It then waits for the
		// next one.
		_, isMember := s.Member(coordinator.ClientID(a.id))
		if !isMember && !s.IsPending(coordinator.ClientID(a.id)) || s.Config.MinClients != 1 {
			t.Error("the other client is missing")
		}
	})
}
