package server

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/net/admission"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// maxGroup limits the actions that share one write to the disk.
const maxGroup = 256

// host is one run: its core, its journal, and the published state. Only the goroutine of loop uses
// the fields of the first group.
type host struct {
	core       *core.Host
	state      *coordinator.State // the core's
	store      store
	oneAddress bool // the warning that all clients come from one address was logged

	server   *server
	runID    string
	run      [32]byte // hash of the run in signed messages
	logger   *slog.Logger
	registry *registry
	certs    certs
	called   core.Names        // names last passed to OnNames
	growth   *admission.Budget // rate limit of actions that can be repeated without end and make the journal longer
	requests chan request
	newest   atomic.Pointer[publication]
	logSize  atomic.Int64              // bytes of the journal on the disk
	beat     atomic.Pointer[time.Time] // newest sign of life of loop; nil: none. Not Unix time, which may jump
	trouble  atomic.Pointer[error]     // error that stops the run
}

// request is an action that waits for the host.
type request struct {
	action wire.SignedAction
	from   net.Addr     // address of its connection
	reply  chan<- error // buffered; receives nil if the action was accepted
}

func newHost(server *server, s store) (*host, error) {
	o := server.options
	h := &host{
		state: &s.log.State, store: s,
		server:   server,
		runID:    s.log.State.RunID,
		run:      s.log.Run(),
		logger:   o.Logger.With("run", s.log.State.RunID),
		registry: newRegistry(server.unknown, server.onlookers),
		growth:   admission.NewBudget(o.JoinsPerSecond, o.JoinsAtOnce),
		requests: make(chan request),
	}
	if identity.ID(h.state.Authority.Main) == h.server.key.ID() && h.state.RunState != coordinator.Finished {
		h.logger.Warn("the host's own key is the run's main authority: a reader of host-key.json can pause the run and replace its model, data and rules; begin runs with --main-authority and a key on another machine", "key", h.server.key.ID())
	}
	h.openCerts()
	h.core = core.New(s.log, h.now(), h.coreOptions())
	h.alive()
	if o.OnRun != nil {
		server.watchers.Lock()
		o.OnRun(h.runID, h.run)
		server.watchers.Unlock()
	}
	_, err := h.finish(context.Background()) // nothing to write
	return h, err
}

func (h *host) coreOptions() core.Options {
	o := core.Options{
		Times:      core.DefaultTimes,
		Sign:       wire.Signer(h.server.key, h.run),
		Connection: h.registry.origin,
		Behind:     h.registry.isBehind,
		Names:      h.store.names,
		Acted:      h.acted,
		Moved:      h.moved,
	}
	o.Times.WithdrawGrace, o.Times.RestartGrace = h.server.options.WithdrawGrace, h.server.options.RestartGrace
	if h.store.draws != nil { // nil only if the run is finished
		o.Draws = h.store.draws.chain
	}
	return o
}

// now returns the current time and the time of the run's clock.
func (h *host) now() core.Now { return core.Now{Time: time.Now(), Clock: h.server.options.Now()} }

// openCerts loads the certificates of epochs. Without them, newcomers replay the whole log.
func (h *host) openCerts() {
	h.certs.run = h.run
	if h.store.keeps() {
		h.certs.path = certificatesPath(h.server.options.SaveStateDir, h.runID)
		err := h.certs.load(&h.store)
		if err == nil {
			return
		}
		if !errors.Is(err, fs.ErrNotExist) {
			h.logger.Warn("cannot use the epoch certificates; newcomers replay the log", "file", h.certs.path, "reason", err)
		}
	}
	if first := h.store.log.FirstEpoch(); first.Index != 0 {
		h.certs.began(first, 0, nil)
	}
}

// noteEpoch lets the members certify an epoch that has started.
func (h *host) noteEpoch() {
	e, state := h.store.log.Epoch(), h.store.begunState
	h.store.begunState = nil
	links, _ := h.certs.way()
	first := e.Index == h.store.log.FirstEpoch().Index
	if state == nil || len(links) == 0 && !first {
		return // no epoch has started, or the certificate file is missing and with it the start of the first epoch
	}
	h.certs.began(e, h.store.begunAt, state)
	if first {
		h.saveCerts()
	}
}

// saveCerts saves the certificates. Without them, newcomers take longer.
func (h *host) saveCerts() {
	if err := h.certs.save(); err != nil {
		h.logger.Warn("cannot save the epoch certificates", "file", h.certs.path, "error", err)
	}
}

// alive records that loop works.
func (h *host) alive() {
	now := time.Now()
	h.beat.Store(&now)
}

// silent returns the time since loop last called alive.
func (h *host) silent() time.Duration {
	beat := h.beat.Load()
	if beat == nil {
		return math.MaxInt64
	}
	return time.Since(*beat)
}

// collect returns the first request and all other waiting requests, so that they share one sync of
// the disk.
func (h *host) collect(first request) []request {
	group := []request{first}
	for len(group) < maxGroup {
		select {
		case r := <-h.requests:
			group = append(group, r)
		default:
			return group
		}
	}
	return group
}

// step applies a group of actions and all due transitions, and then calls finish.
func (h *host) step(ctx context.Context, group []request) error {
	now := h.now()
	for _, r := range group {
		if _, joins := r.action.Action.(coordinator.Join); joins {
			h.warnOfOneAddress(r.from)
		}
		h.core.Submit(now, r.action, h.origin(r.from), func(err error) { r.reply <- err })
	}
	h.core.Tick(now)
	size := h.logSize.Load()
	took, err := h.finish(ctx)
	if err != nil {
		return err
	}
	if len(group) > 0 {
		h.server.metrics.commit.Observe(took.Seconds())
	}
	if h.logSize.Load() != size {
		h.emit(Event{Kind: EventCommitted, Took: took, Phase: h.phaseNow()})
	}
	return h.snapshot(ctx)
}

// finish makes the core's changes durable, lets connections read the longer journal, and lets the
// core publish and answer. It returns the time that the disk took.
func (h *host) finish(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	if err := h.commit(ctx); err != nil {
		return 0, err
	}
	took = time.Since(began)
	if h.store.keeps() {
		h.logSize.Store(h.store.journal.Size())
	}
	known := h.core.Known()
	h.registry.seatUnknown(known)
	h.core.Advance(h.now(), func(u core.Update) { h.publish(u, known) })
	return took, nil
}

// snapshot writes a snapshot of the current state if there are enough new records. It returns only
// errors of the journal: without a snapshot, the next start just takes longer.
func (h *host) snapshot(ctx context.Context) error {
	if !h.store.keeps() || h.store.unsaved < h.server.options.SnapshotEvery {
		return nil
	}
	taken := snapshot{position: h.store.journal.Position(), starts: h.store.log.Starts(), state: h.state.AppendTo(nil), names: maps.Clone(h.core.Names())}
	h.core.Digest()
	if _, err := h.finish(ctx); err != nil {
		return err
	}
	h.store.unsaved = 0
	if err := taken.write(h.store.snapshotPath); err != nil {
		h.logger.Warn("cannot write a snapshot", "snapshot", h.store.snapshotPath, "error", err)
	}
	return nil
}

// acted emits an event for an accepted or refused action.
func (h *host) acted(a wire.SignedAction, err error) {
	event := Event{Kind: EventAccepted, Client: a.From, Action: follow.ActionName(a.Action), Phase: h.phaseNow()}
	if err != nil {
		event.Kind = EventRefused
		event.Code, _ = errors.AsType[coordinator.Code](err)
		h.logRefusal("refused an action", "action", event.Action, "client", a.From, "step", h.state.Progress.Step, "reason", err)
	} else if w, ok := a.Action.(coordinator.Withdraw); ok && a.From == h.server.key.ID() {
		h.logger.Info("withdrew a disconnected client", "client", identity.ID(w.Client), "grace", h.server.options.WithdrawGrace)
	} else {
		values := []any{"action", event.Action, "client", a.From, "step", h.state.Progress.Step}
		if join, ok := a.Action.(coordinator.Join); ok && wire.NameOf(join) != "" {
			values = append(values, "name", join.Name)
		}
		h.logger.Info("accepted an action", values...)
	}
	h.emit(event)
}

// moved emits an event for a change of the run state.
func (h *host) moved(before coordinator.RunState) {
	h.logger.Info("run state", "from", before.String(), "to", h.state.RunState.String(), "epoch", h.state.Progress.Epoch, "step", h.state.Progress.Step)
	h.emit(Event{Kind: EventTransition, Phase: h.phaseNow()})
}

// logRefusal logs a message that a client caused. It drops messages above the rate limit.
func (h *host) logRefusal(message string, values ...any) {
	if h.server.noise.Allow() {
		h.logger.Info(message, values...)
	}
}

// publish gives the connections the newest state and peers if they changed. The keys in known do
// not count as unknown clients.
func (h *host) publish(u core.Update, known map[identity.ID]bool) {
	next := publication{
		phase: h.phaseNow(), participants: len(u.Participants), claimed: claimedLoss(u.State), known: known, roleKeys: h.core.RoleKeys(), closed: u.State.Closed,
	}
	if newest := h.newest.Load(); newest != nil {
		next.heldOut = newest.heldOut
		next.state, next.peers, next.log, next.definition, next.name = newest.state, newest.peers, newest.log, newest.definition, newest.name
	}
	if definition := u.State.Model.Definition; !bytes.Equal(definition, next.definition) {
		next.definition = definition
		next.name, _ = config.NameOf(definition)
	}
	next.heldOut = heldOutLoss(u.State, next.heldOut)
	peers := frame.AppendPeers(nil, h.registry.peers(u.Participants, h.core.Names()))
	peersAreNew := next.peers.version == 0 || !bytes.Equal(peers, next.peers.payload)
	if !u.Changed && !peersAreNew {
		return
	}
	if u.Changed {
		next.state = next.state.next(frame.TypeState, frame.TypeStateDelta, u.State.AppendTo(nil))
		if next.log.index == 0 {
			next.log = beginLogStream(&h.store, h.server.key)
		} else {
			next.log = next.log.next(h.store.log, h.store.fresh, h.store.journal.Size(), h.server.key)
		}
		h.store.fresh = nil
		h.noteEpoch()
		h.server.show(u.State)
		if names := h.core.Names(); !maps.Equal(names, h.called) {
			h.called = maps.Clone(names)
			h.server.call(h.runID, h.called)
		}
	}
	if peersAreNew {
		next.peers = next.peers.next(frame.TypePeers, frame.TypePeersDelta, peers)
	}
	h.newest.Store(&next)
	h.registry.wakeAll()
}

// phaseNow returns the current Phase of the run.
func (h *host) phaseNow() Phase {
	return Phase{RunState: h.state.RunState, Epoch: h.state.Progress.Epoch, Step: h.state.Progress.Step}
}

// emit emits an event of this run. It is safe for concurrent use.
func (h *host) emit(e Event) {
	e.RunID = h.runID
	h.server.emit(e)
}
