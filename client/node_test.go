package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/backend/memory"
	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/client/memnet"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testRun = "test-run"

// world is a run in a bubble of virtual time: host, network and clients.
type world struct {
	t    *testing.T
	hub  *memnet.Hub
	host *memory.Host
	dir  string

	ctx   context.Context
	tasks sync.WaitGroup
	lives map[identity.ID]int
}

func newWorld(t *testing.T, config coordinator.Config) *world {
	w := &world{t: t, hub: &memnet.Hub{}, dir: t.TempDir(), lives: map[identity.ID]int{}}
	host, err := memory.NewHost(memory.Options{
		Genesis: func(id coordinator.ClientID) (coordinator.State, error) {
			return coordinator.New(testRun, id, config, coordinator.Model{
				MaxSeqLen: 2, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy},
			})
		},
		Now: func() uint64 { return uint64(time.Now().UnixMilli()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.host = host
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	w.ctx = ctx
	w.tasks.Go(func() { host.Run(ctx, 100*time.Millisecond) })
	t.Cleanup(func() { cancel(); w.tasks.Wait() })
	return w
}

// member is one life of a client.
type member struct {
	w       *world
	id      identity.ID
	trainer *fakeTrainer
	net     *memnet.Node
	backend *memory.Client
	node    *Node
	events  string
	done    chan struct{}
	err     error
	cancel  context.CancelFunc
}

func testKey(n int) identity.Key { return identity.FromSeed([identity.SeedSize]byte{byte(n), 77}) }

// options are what a test may change before a client begins.
type options struct {
	trainer *fakeTrainer
	Options
}

// launch starts a client; change may be nil.
func (w *world) launch(n int, change func(o *options)) *member {
	w.t.Helper()
	key := testKey(n)
	m := &member{w: w, id: key.ID(), done: make(chan struct{})}
	w.lives[m.id]++
	m.events = filepath.Join(w.dir, fmt.Sprintf("events-%d-%d.jsonl", n, w.lives[m.id]))
	log, err := event.Open(m.events)
	if err != nil {
		w.t.Fatal(err)
	}
	if m.backend, err = w.host.Attach(key); err != nil {
		w.t.Fatal(err)
	}
	m.net = w.hub.Attach(m.id)
	o := options{trainer: &fakeTrainer{id: m.id, duration: time.Duration(n+1) * 300 * time.Millisecond}}
	o.Options = Options{
		Key: key, RunID: testRun, Backend: m.backend, Network: m.net, Data: fakeData{}, Events: log,
		Initial: func(context.Context, coordinator.Checkpoint) (checkpoint.Snapshot, error) { return fakeModel(), nil },
	}
	if os.Getenv("PSYCHE_TEST_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&o)
	}
	m.trainer = o.trainer
	o.NewTrainer = func(_ context.Context, s checkpoint.Snapshot, _ coordinator.Model) (Trainer, error) {
		o.trainer.load(s)
		return o.trainer, nil
	}
	if m.node, err = New(o.Options); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	m.cancel = cancel
	w.tasks.Go(func() {
		defer close(m.done)
		m.err = m.node.Run(ctx)
		m.net.Close()
		if err := errors.Join(m.backend.Close(), log.Close()); err != nil {
			w.t.Error(err)
		}
	})
	return m
}

// crash ends a client the way a killed process ends: nobody hears from it.
func (m *member) crash() {
	m.net.Close()
	_ = m.backend.Close()
	<-m.done
}

// wait waits for the end of a client's run.
func (m *member) wait() {
	m.w.t.Helper()
	select {
	case <-m.done:
	case <-m.w.ctx.Done():
		state := m.w.host.State()
		m.w.t.Fatalf("client %s has not ended: %v epoch %d step %d", m.id.Short(), state.RunState, state.Progress.Epoch, state.Progress.Step)
	}
}

// until waits for a condition on the coordinator's state.
func (w *world) until(what string, holds func(s *coordinator.State) bool) {
	w.t.Helper()
	for w.ctx.Err() == nil {
		s := w.host.State()
		if holds(&s) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatalf("never: %s", what)
}

// all returns the events of one kind that a client wrote.
func all[B event.Body](m *member) []B {
	m.w.t.Helper()
	var found []B
	for e, err := range event.Read(m.events) {
		if err != nil {
			m.w.t.Fatal(err)
		}
		if b, ok := e.Body.(B); ok {
			found = append(found, b)
		}
	}
	return found
}

// finishEqual waits for all clients and checks that they end with the same model.
func finishEqual(w *world, members ...*member) {
	w.t.Helper()
	for _, m := range members {
		m.wait()
		if m.err != nil {
			w.t.Errorf("client %s: %v", m.id.Short(), m.err)
		}
	}
	state := w.host.State()
	if state.RunState != coordinator.Finished || state.Model.Checkpoint.Kind != coordinator.CheckpointP2P {
		w.t.Errorf("run ended in %v with a %v checkpoint", state.RunState, state.Model.Checkpoint.Kind)
	}
	want := members[0].trainer.weights
	for _, m := range members {
		finished := all[event.Finished](m)
		if len(finished) != 1 || finished[0].Digest != hexOf(state.Model.Checkpoint.Digest) {
			w.t.Errorf("client %s finished with %+v, the run with %x", m.id.Short(), finished, state.Model.Checkpoint.Digest)
		}
		if m.trainer.weights != want {
			w.t.Errorf("client %s ended with other weights", m.id.Short())
		}
	}
}

func TestRunToTheEnd(t *testing.T) {
	for _, clients := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(clients), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeConfig(uint16(clients)))
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

// checkWholeRun checks the events of clients that took part in everything.
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
			if (err == nil) != (j >= 1) { // the newest two are kept
				t.Errorf("client %d: checkpoint %+v: %v", i, s, err)
			}
		}
		// What was exchanged is dropped but for the newest rounds and the model.
		if blobs := m.net.BlobCount(); blobs > 3*len(members)+1+fakeWidth {
			t.Errorf("client %d keeps %d blobs", i, blobs)
		}
	}
}

// TestResultsAreAppliedTwoRoundsLater runs with a lag of 2: a round is trained while the
// results of the one before it are still on their way, and the end of an epoch leaves
// nothing behind. One client falls out and comes back in between.
func TestResultsAreAppliedTwoRoundsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := fakeConfig(3)
		config.TotalSteps = 12
		w := newWorld(t, config)
		late := func(o *options) { o.trainer.lag = 2 }
		a, b, c := w.launch(0, late), w.launch(1, late), w.launch(2, late)
		w.until("second epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 1 && s.Progress.Step > 5 })
		c.crash()
		w.until("another round", func(s *coordinator.State) bool { return s.Progress.Step > 6 })
		again := w.launch(2, late)
		finishEqual(w, a, b, again)
		for _, m := range []*member{a, b} {
			if lost := all[event.Desynchronised](m); len(lost) != 0 {
				t.Errorf("%+v", lost)
			}
			checkLag(t, m, 2, 12)
		}
	})
}

// checkLag reads in which order a client applied and trained.
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

// firstHolders is a network that counts which holder a fetch asks first.
type firstHolders struct {
	Network
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
		config := fakeConfig(3)
		config.TotalSteps = 12
		w := newWorld(t, config)
		a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 && s.RunState == coordinator.RoundTrain })
		c.crash()
		if c.err == nil {
			t.Error("a client without a host went on")
		}
		w.until("third round", func(s *coordinator.State) bool { return s.Progress.Step == 3 })
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
		w := newWorld(t, fakeConfig(2))
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
		// Alone it is no quorum, so its epoch may be over already: then it waits for the next.
		_, isMember := s.Member(coordinator.ClientID(a.id))
		if !isMember && !s.IsPending(coordinator.ClientID(a.id)) || s.Config.MinClients != 1 {
			t.Error("the other client is gone")
		}
	})
}
