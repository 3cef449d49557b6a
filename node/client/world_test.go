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
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/memnet"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a run in virtual time, with its host, network and clients.
type world struct {
	t    *testing.T
	hub  *memnet.Hub
	host *memory.Host
	dir  string

	ctx   context.Context
	tasks sync.WaitGroup
	lives map[identity.ID]int
	heard verified
}

func newWorld(t *testing.T, config coordinator.Config, definition ...byte) *world {
	return newWorldOf(t, config, 100*time.Millisecond, definition...)
}

// newWorldOf is newWorld with the interval at which the host reads its clock, and a definition of
// the model.
func newWorldOf(t *testing.T, config coordinator.Config, tick time.Duration, definition ...byte) *world {
	return newWorldAt(t, config, tick, func() uint64 { return uint64(time.Now().UnixMilli()) }, definition...)
}

// newWorldAt is newWorldOf with the host's clock, in milliseconds.
func newWorldAt(t *testing.T, config coordinator.Config, tick time.Duration, clock func() uint64, definition ...byte) *world {
	w := &world{t: t, hub: &memnet.Hub{}, dir: t.TempDir(), lives: map[identity.ID]int{}}
	w.host = clienttest.Host(t, config, clock, definition...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	w.ctx = ctx
	w.tasks.Go(func() { w.host.Run(ctx, tick) })
	t.Cleanup(func() { cancel(); w.tasks.Wait() })
	return w
}

// member is one process of a client.
type member struct {
	w       *world
	id      identity.ID
	trainer *clienttest.Trainer
	net     *memnet.Node
	backend *memory.Client
	node    *Node
	events  string
	done    chan struct{}
	err     error
	cancel  context.CancelFunc
}

// options contains the settings that a test may change before a client begins.
type options struct {
	trainer *clienttest.Trainer
	audited *clienttest.Audited // replaces trainer; nil: not audited
	prepare func(n *Node)       // called before the client runs; may be nil
	Options
}

// verified contains the announcements whose signatures a member of a world has verified.
type verified struct {
	mu     sync.Mutex
	opened map[sealed]signedBy
}

// sealed is the argument of Open.
type sealed struct {
	raw string
	run [32]byte
}

// signedBy is the result of Open.
type signedBy struct {
	author       identity.ID
	announcement wire.ResultAnnouncement
}

// openedOnce verifies each signature once for all members of a world. Otherwise, tests would spend
// most of their time on the same signatures.
type openedOnce struct {
	env.Announcements
	known *verified
}

// Open implements env.Announcements.
func (o openedOnce) Open(raw []byte, run [32]byte) (identity.ID, wire.ResultAnnouncement, error) {
	key := sealed{string(raw), run}
	o.known.mu.Lock()
	by, ok := o.known.opened[key]
	o.known.mu.Unlock()
	if ok {
		return by.author, by.announcement, nil
	}
	author, a, err := o.Announcements.Open(raw, run)
	if err != nil {
		return author, a, err
	}
	o.known.mu.Lock()
	defer o.known.mu.Unlock()
	if o.known.opened == nil {
		o.known.opened = make(map[sealed]signedBy)
	}
	o.known.opened[key] = signedBy{author, a}
	return author, a, nil
}

// launch starts a client; change may be nil.
func (w *world) launch(n int, change func(o *options)) *member {
	w.t.Helper()
	key := clienttest.Key(n)
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
	o := options{trainer: &clienttest.Trainer{ID: m.id, Duration: time.Duration(n+1) * 300 * time.Millisecond}}
	o.Options = Options{
		Key: key, RunID: clienttest.RunID, Backend: m.backend, Network: m.net, Data: clienttest.Data{}, Events: log,
		Initial: func(context.Context, coordinator.Checkpoint) (checkpoint.Snapshot, error) {
			return clienttest.Model(), nil
		},
	}
	if os.Getenv("PSYCHE_TEST_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&o)
	}
	m.trainer = o.trainer
	o.NewTrainer = func(ctx context.Context, s checkpoint.Snapshot, d env.Definition) (env.Trainer, error) {
		if c := d.Checkpoint; c.Kind != coordinator.CheckpointDummy && c.Origin != coordinator.CheckpointDummy {
			w.t.Errorf("%v does not name the first model of the run", c)
		}
		if o.audited != nil {
			return o.audited, o.audited.Load(ctx, s)
		}
		return o.trainer, o.trainer.Load(ctx, s)
	}
	if o.Announcements == nil {
		o.Announcements = openedOnce{env.Signed{Key: o.Key}, &w.heard}
	}
	if m.node, err = New(o.Options); err != nil {
		w.t.Fatal(err)
	}
	if o.prepare != nil {
		o.prepare(m.node)
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

// crash ends a client like a killed process, without a message to other clients.
func (m *member) crash() { crash(m) }

// crash ends clients at the same moment, so that none of them notices the end of the others.
func crash(members ...*member) {
	for _, m := range members {
		m.net.Close()
		_ = m.backend.Close()
	}
	for _, m := range members {
		<-m.done
	}
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
func (w *world) until(subject string, holds func(s *coordinator.State) bool) {
	w.t.Helper()
	for w.ctx.Err() == nil {
		s := w.host.State()
		if holds(&s) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatalf("not in time: %s", subject)
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
	want := members[0].trainer.Weights()
	for _, m := range members {
		finished := all[event.Finished](m)
		if len(finished) != 1 || finished[0].Digest != hexOf(state.Model.Checkpoint.Digest) {
			w.t.Errorf("client %s finished with %+v, the run with %x", m.id.Short(), finished, state.Model.Checkpoint.Digest)
		}
		if m.trainer.Weights() != want {
			w.t.Errorf("client %s ended with different weights", m.id.Short())
		}
	}
}
