package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/memnet"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// order is the order of entries of the same moment.
type order int

const (
	byLoop    order = iota // work of the client's loop, in its order
	cancelled              // tasks that end because the loop does not need them any more
	started                // tasks that start
	onDisk
)

// chronicle lists what a client does.
type chronicle struct {
	mu      sync.Mutex
	began   time.Time
	entries []entry
}

type entry struct {
	at    time.Time
	order order
	text  string
	peer  string // receiver of a message; empty: none
}

func (c *chronicle) add(o order, text, peer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = append(c.entries, entry{time.Now(), o, text, peer})
}

// take returns the entries and removes them. Entries of one moment that differ only in the peer, or
// not at all, are one line.
func (c *chronicle) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortStableFunc(c.entries, func(a, b entry) int {
		if before := cmp.Or(a.at.Compare(b.at), cmp.Compare(a.order, b.order)); before != 0 || a.order == byLoop {
			return before
		}
		return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.peer, b.peer))
	})
	var out strings.Builder
	var last time.Time
	for len(c.entries) > 0 {
		e, n := c.entries[0], 1
		for n < len(c.entries) && c.entries[n].at.Equal(e.at) && c.entries[n].text == e.text {
			n++
		}
		stamp := ""
		if !e.at.Equal(last) {
			stamp = fmt.Sprintf("%.3f", e.at.Sub(c.began).Seconds())
		}
		fmt.Fprintf(&out, "%7s  %s%s\n", stamp, e.text, repeated(c.entries[:n]))
		last, c.entries = e.at, c.entries[n:]
	}
	return out.String()
}

// repeated returns the peers or the number of entries with the same text.
func repeated(entries []entry) string {
	var peers []string
	for _, e := range entries {
		peers = append(peers, e.peer)
	}
	peers = slices.Compact(peers)
	switch {
	case peers[0] != "":
		return " " + strings.Join(peers, ", ")
	case len(entries) > 1:
		return fmt.Sprintf(", %d times", len(entries))
	}
	return ""
}

// process is one process of the observed client.
type process struct {
	member
	log  *chronicle
	dead atomic.Bool   // it was killed: its remaining work is not listed
	step atomic.Uint32 // newest step that it has seen
	seen event.State   // newest state that it has seen; of the loop
}

func (p *process) note(o order, format string, args ...any) {
	if !p.dead.Load() {
		p.log.add(o, fmt.Sprintf(format, args...), "")
	}
}

// does lists work of a task and lets it take some time.
func (p *process) does(ctx context.Context, takes time.Duration, format string, args ...any) error {
	p.note(started, format, args...)
	return pause.For(ctx, takes)
}

// ended lists the end of Run.
func (p *process) ended() {
	switch {
	case p.err == nil:
		p.note(byLoop, "ends with success")
	case errors.Is(p.err, context.Canceled):
		p.note(byLoop, "ends, because it was interrupted")
	default:
		p.note(byLoop, "ends with an error")
	}
}

// see lists an event.
func (p *process) see(e event.Event) {
	switch b := e.Body.(type) {
	case event.State:
		if b.RunState != p.seen.RunState || b.Step != p.seen.Step {
			p.note(byLoop, "sees %s, %s", b.RunState, placeIn(b))
		}
		p.seen = b
		p.step.Store(b.Step)
	case event.Ready:
		p.note(byLoop, "holds the model of step %d, source %q", b.Step, b.Source)
	case event.Trained:
		p.note(byLoop, "has a result of step %d", b.Step)
	case event.ResultsHeld:
		p.note(byLoop, "holds %d of %d results of step %d", b.Held, b.Batches, b.Step)
	case event.WitnessSent:
		p.note(byLoop, "the host has its proof of step %d: %d of %d results", b.Step, b.Held, b.Batches)
	case event.Applied:
		own := "excluding its own"
		if b.OwnCounted {
			own = "including its own"
		}
		p.note(byLoop, "the model includes step %d: %d results, %s", b.Step, b.Counted, own)
	case event.Desynchronised:
		p.note(byLoop, "is desynchronised")
	case event.Rejoined:
		p.note(byLoop, "is back in epoch %d", b.Epoch)
	case event.Checkpoint:
		p.note(byLoop, "the run recorded its model of step %d", b.Step)
	case event.Finished:
		p.note(byLoop, "finished with the model of step %d", b.Step)
	}
}

// placeIn describes the place of a state in the run.
func placeIn(s event.State) string {
	switch s.RunState {
	case coordinator.RoundTrain.String(), coordinator.RoundWitness.String():
		return fmt.Sprintf("step %d", s.Step)
	}
	return fmt.Sprintf("epoch %d", s.Epoch)
}

// link is a connection to the host that survives a restart of the host. It implements env.Backend.
type link struct {
	process *process      // nil: its actions are not listed
	way     time.Duration // delay of an action on its way to the host
	updates chan backend.Update

	mu    sync.Mutex
	inner *memory.Client // nil: the host is down
}

func newLink(c env.Backend, p *process, way time.Duration) *link {
	l := &link{process: p, way: way, updates: make(chan backend.Update, 1)}
	l.use(c.(*memory.Client))
	return l
}

// use connects to a host.
func (l *link) use(c *memory.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inner = c
	go func() {
		for u := range c.Updates() {
			select {
			case <-l.updates: // a newer state replaces the older one
			default:
			}
			l.updates <- u
		}
		if l.current() == c {
			close(l.updates)
		}
	}()
}

// cut ends the connection, as if the host stopped.
func (l *link) cut() {
	l.mu.Lock()
	c := l.inner
	l.inner = nil
	l.mu.Unlock()
	c.Cut()
}

func (l *link) current() *memory.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inner
}

// Updates implements env.Backend.
func (l *link) Updates() <-chan backend.Update { return l.updates }

// Submit implements env.Backend.
func (l *link) Submit(ctx context.Context, a coordinator.Action) error {
	p := l.process
	if p != nil {
		p.note(started, "submits %s", describe(a))
	}
	if err := pause.For(ctx, l.way); err != nil {
		return err
	}
	c := l.current()
	if c == nil {
		return backend.ErrDisconnected
	}
	err := c.Submit(ctx, a)
	time.Sleep(time.Millisecond) // the answer comes after the state; without this pause, their order would be random
	var code coordinator.Code
	if errors.As(err, &code) && p != nil {
		p.note(started, "the host refuses %s: %v", describe(a), code)
	}
	return err
}

// Announce implements env.Backend.
func (l *link) Announce(ctx context.Context, addrs []string) error {
	return l.current().Announce(ctx, addrs)
}

// Err implements env.Backend.
func (l *link) Err() error { return nil }

// Close implements env.Backend.
func (l *link) Close() error { return nil }

// describe returns an action in plain English.
func describe(a coordinator.Action) string {
	switch a := a.(type) {
	case coordinator.Join:
		if a.Holds != ([32]byte{}) {
			return "Join, with a model of the run"
		}
		return "Join"
	case coordinator.Ready:
		return fmt.Sprintf("Ready for epoch %d", a.Epoch)
	case coordinator.Return:
		return fmt.Sprintf("Return to epoch %d", a.Epoch)
	case coordinator.WitnessRound:
		return fmt.Sprintf("its proof of step %d", a.Step)
	case coordinator.HealthCheck:
		var names []string
		for _, id := range a.Clients {
			names = append(names, nameOf(identity.ID(id)))
		}
		return fmt.Sprintf("HealthCheck of step %d: %s", a.Step, strings.Join(names, ", "))
	case coordinator.ReportCheckpoint:
		return fmt.Sprintf("the digest of its model of step %d", a.Step-1)
	case coordinator.Withdraw:
		return "Withdraw"
	}
	return follow.ActionName(a)
}

// observedNetwork lists the messages of the client.
type observedNetwork struct {
	*memnet.Node
	process *process
}

// Publish implements env.Gossip.
func (n *observedNetwork) Publish(ctx context.Context, message []byte) error {
	if _, a, err := wire.OpenAnnouncement(message, clienttest.Run); err == nil {
		n.process.note(started, "announces its result of step %d to all", a.Step)
	}
	return n.Node.Publish(ctx, message)
}

// questions describes requests, by protocol.
var questions = map[string]string{
	exchange.PushProtocol:    "sends its result to",
	exchange.RoundProtocol:   "asks for announcements from",
	exchange.ModelProtocol:   "asks for a list of the model's parts from",
	exchange.ResultsProtocol: "asks for counted results from",
	exchange.ReplicaProtocol: "asks for the replica hash from",
}

// Request implements env.Requests.
func (n *observedNetwork) Request(ctx context.Context, to identity.ID, protocol string, request []byte, maxResponse int) ([]byte, error) {
	question, known := questions[protocol]
	if !known {
		question = "requests " + protocol + " from"
	}
	if !n.process.dead.Load() {
		n.process.log.add(started, question, nameOf(to))
	}
	if err := pause.For(ctx, 13*time.Millisecond); err != nil {
		return nil, err
	}
	return n.Node.Request(ctx, to, protocol, request, maxResponse)
}

// Lend implements env.Blobs.
func (n *observedNetwork) Lend(data []byte) ([32]byte, error) {
	n.process.note(started, "shares a part of a model")
	return n.Node.Lend(data)
}

// LendFrom implements env.Blobs.
func (n *observedNetwork) LendFrom(data *io.SectionReader, lost func(error)) ([32]byte, error) {
	n.process.note(started, "shares a part of a model from its disk")
	return n.Node.LendFrom(data, lost)
}

// Fetch implements env.Blobs.
func (n *observedNetwork) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	if data, err := n.Node.Fetch(ctx, hash, size, nil); err == nil {
		return data, nil // the client has it
	}
	if err := n.process.does(ctx, 7*time.Millisecond, "fetches from peers"); err != nil {
		return nil, err
	}
	return n.Node.Fetch(ctx, hash, size, holders)
}

// observedSignatures lists the signatures of the client, and the signing record at that moment.
type observedSignatures struct {
	env.Announcements
	process *process
	folder  keep.Folder
}

// Sign implements env.Announcements.
func (s *observedSignatures) Sign(a wire.ResultAnnouncement) []byte {
	record := ""
	if s.folder.Dir != "" {
		step, _, err := s.folder.NewestSigned(clienttest.Run)
		record = fmt.Sprintf("; the signing record has step %d", step)
		if err != nil {
			record = "; the signing record is unreadable"
		}
	}
	s.process.note(byLoop, "signs its result of step %d%s", a.Step, record)
	return s.Announcements.Sign(a)
}

// observedData lists the batches that the client reads.
type observedData struct{ process *process }

// Batch implements env.DataProvider.
func (d observedData) Batch(ctx context.Context, id assign.BatchID) (data.Batch, error) {
	if err := d.process.does(ctx, 5*time.Millisecond, "reads batch %v", id); err != nil {
		return data.Batch{}, err
	}
	return clienttest.Data{}.Batch(ctx, id)
}

// observedTrainer lists the work of the trainer.
type observedTrainer struct {
	*clienttest.Trainer
	process *process
	delay   func() time.Duration // additional time of a training
}

// Train implements env.Trainer.
func (t *observedTrainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	ahead := ""
	if step > t.process.step.Load() {
		ahead = " ahead of its round"
	}
	t.process.note(started, "trains step %d%s", step, ahead)
	if err := pause.For(ctx, t.delay()); err != nil {
		t.process.note(cancelled, "cancels the training of step %d", step)
		return nil, 0, err
	}
	payload, loss, err := t.Trainer.Train(ctx, step, batch, begun)
	if err != nil {
		t.process.note(cancelled, "cancels the training of step %d", step)
	}
	return payload, loss, err
}

// Apply implements env.Trainer.
func (t *observedTrainer) Apply(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, own bool) error {
	if err := t.process.does(ctx, 20*time.Millisecond, "applies step %d", step); err != nil {
		return err
	}
	return t.Trainer.Apply(ctx, step, payloads, votes, own)
}

// Speculate implements env.Speculator.
func (t *observedTrainer) Speculate(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, own bool) (bool, error) {
	if err := t.process.does(ctx, 20*time.Millisecond, "applies step %d speculatively: %d results", step, len(payloads)); err != nil {
		return false, err
	}
	return t.Trainer.Speculate(ctx, step, payloads, votes, own)
}

// Confirm implements env.Speculator.
func (t *observedTrainer) Confirm(step uint32) bool {
	t.process.note(byLoop, "confirms the speculation on step %d", step)
	return t.Trainer.Confirm(step)
}

// Snapshot implements env.Trainer.
func (t *observedTrainer) Snapshot(ctx context.Context) (checkpoint.Snapshot, error) {
	if err := t.process.does(ctx, 50*time.Millisecond, "copies the model"); err != nil {
		return checkpoint.Snapshot{}, err
	}
	return t.Trainer.Snapshot(ctx)
}

// Load implements env.Trainer.
func (t *observedTrainer) Load(ctx context.Context, s checkpoint.Snapshot) error {
	if err := t.process.does(ctx, 50*time.Millisecond, "loads the model into the trainer"); err != nil {
		return err
	}
	return t.Trainer.Load(ctx, s)
}

// ResetOptimizer implements env.Trainer.
func (t *observedTrainer) ResetOptimizer(ctx context.Context) error {
	t.process.note(started, "resets the optimizer")
	return t.Trainer.ResetOptimizer(ctx)
}

// LoadOptimizer implements env.OptimizerSaver.
func (t *observedTrainer) LoadOptimizer(ctx context.Context, path string) error {
	t.process.note(started, "loads the optimizer's state from its disk")
	return t.Trainer.LoadOptimizer(ctx, path)
}

// observedLog lists that the client logs a warning or an error, without its text.
type observedLog struct {
	slog.Handler
	process *process
}

// Handle implements slog.Handler.
func (l observedLog) Handle(_ context.Context, r slog.Record) error {
	switch {
	case r.Level >= slog.LevelError:
		l.process.note(byLoop, "logs an error")
	case r.Level >= slog.LevelWarn:
		l.process.note(byLoop, "logs a warning")
	}
	return nil
}

// Enabled implements slog.Handler.
func (l observedLog) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

// WithAttrs implements slog.Handler.
func (l observedLog) WithAttrs([]slog.Attr) slog.Handler { return l }
