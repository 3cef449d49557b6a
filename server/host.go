package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/backend/tcp/frame"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

// maxGroup bounds the actions that share one write to the disk.
const maxGroup = 256

// pushInterval is the least time between two publications of the same phase.
const pushInterval = 50 * time.Millisecond

// host is one run: its state machine, its journal, and what its connections see of it.
// The fields of the first group belong to the goroutine of loop.
type host struct {
	state     coordinator.State
	store     store
	nonce     uint64                    // of the newest action that the host signed
	gone      map[identity.ID]time.Time // when a participant's connection was missed first
	holdUntil time.Time                 // no ticks before, while old members come back
	stateSeen bool                      // the newest state is published
	seenAt    time.Time                 // when a state was published last
	peersSent []byte                    // payload of the newest published peers
	version   uint64                    // of the newest publication

	runID    string
	key      identity.Key
	options  Options
	logger   *slog.Logger
	registry *registry
	requests chan request
	newest   atomic.Pointer[publication]
	eventMu  sync.Mutex            // one OnEvent at a time
	phase    atomic.Pointer[Phase] // as published
}

// request is an action that waits for the host.
type request struct {
	action wire.SignedAction
	reply  chan<- coordinator.Code // has room for the answer
}

// publication is what every client should see: whole frames, built once for all of them.
type publication struct {
	stateVersion, peersVersion uint64
	state, peers               []byte
}

func newHost(o Options, s store) *host {
	h := &host{
		state:    s.state,
		store:    s,
		nonce:    max(s.hostNonce, uint64(max(0, time.Now().UnixNano()))),
		gone:     make(map[identity.ID]time.Time),
		runID:    s.state.RunID,
		key:      s.key,
		options:  o,
		logger:   o.Logger,
		registry: newRegistry(),
		requests: make(chan request),
	}
	if len(h.participants()) > 0 && o.WithdrawGrace > 0 {
		h.holdUntil = time.Now().Add(o.WithdrawGrace)
	}
	h.publish()
	return h
}

// loop is the only goroutine that changes the state. It ends with ctx, or with an error
// when the journal cannot be written: then nothing may be acknowledged any more.
func (h *host) loop(ctx context.Context) error {
	ticker := time.NewTicker(h.options.TickInterval)
	defer ticker.Stop()
	for {
		var group []request
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-h.registry.changed:
		case r := <-h.requests:
			group = h.collect(r)
		}
		if err := h.step(group); err != nil {
			return err
		}
	}
}

// collect adds to a first request those that wait already, so that they share one sync of
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

// step applies a group of actions and everything that is due, makes it durable, answers
// and publishes.
func (h *host) step(group []request) error {
	codes := make([]coordinator.Code, len(group))
	for i, r := range group {
		code, err := h.apply(r.action)
		if err != nil {
			return err
		}
		codes[i] = code
	}
	if err := h.withdrawGone(time.Now()); err != nil {
		return err
	}
	if err := h.tick(); err != nil {
		return err
	}
	if h.store.journal != nil {
		if err := h.store.journal.Commit(); err != nil {
			return fmt.Errorf("%w; nothing after the last acknowledged action was kept: free or repair the disk and start the server again", err)
		}
	}
	for i, r := range group {
		r.reply <- codes[i]
	}
	h.publish()
	return nil
}

// apply applies one action. The error is one of the journal.
func (h *host) apply(a wire.SignedAction) (coordinator.Code, error) {
	before := h.state.RunState
	err := h.state.Apply(coordinator.ClientID(a.From), a.Nonce, a.Action)
	event := Event{Kind: EventAccepted, Client: a.From, Action: actionName(a.Action), Phase: h.phaseNow()}
	if err != nil {
		if !errors.As(err, &event.Code) {
			return 0, fmt.Errorf("apply %s: %w", event.Action, err)
		}
		event.Kind = EventRefused
		h.logger.Info("refused an action", "action", event.Action, "client", a.From, "step", h.state.Progress.Step, "reason", err)
		h.emit(event)
		return event.Code, nil
	}
	h.logger.Info("accepted an action", "action", event.Action, "client", a.From, "step", h.state.Progress.Step)
	h.emit(event)
	if err := h.record(Record{Kind: RecordAction, Action: a}, before); err != nil {
		return 0, err
	}
	return 0, h.tick()
}

// tick lets the state machine do what is due; at most as many transitions follow one
// another as there are states.
func (h *host) tick() error {
	if h.holding() {
		return nil
	}
	for range int(coordinator.Paused) {
		seed, err := h.seed()
		if err != nil {
			return err
		}
		now, before := h.options.Now(), h.state.RunState
		if !h.state.Tick(now, seed) {
			return nil
		}
		if err := h.record(Record{Kind: RecordTick, Now: now, Seed: seed}, before); err != nil {
			return err
		}
	}
	return nil
}

// seed draws the seed of a round. It comes from the system, so nobody can foresee it.
func (h *host) seed() (uint64, error) {
	var b [8]byte
	if _, err := io.ReadFull(h.options.Random, b[:]); err != nil {
		return 0, fmt.Errorf("draw a seed: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// holding reports whether ticks wait for members to come back after a restart, so that no
// round ends because of the time in which the server was down.
func (h *host) holding() bool {
	if h.holdUntil.IsZero() {
		return false
	}
	if time.Now().Before(h.holdUntil) {
		for id := range h.participants() {
			if !h.registry.isLive(id) {
				return true
			}
		}
	}
	h.holdUntil = time.Time{}
	return false
}

// record notes a change of the state for the journal and for whoever watches.
func (h *host) record(r Record, before coordinator.RunState) error {
	h.stateSeen = false
	if h.store.journal != nil {
		if err := h.store.journal.Append(r.AppendTo(nil)); err != nil {
			return err
		}
	}
	if h.state.RunState != before {
		h.logger.Info("run state", "from", before, "to", h.state.RunState, "epoch", h.state.Progress.Epoch, "step", h.state.Progress.Step)
		h.emit(Event{Kind: EventTransition, Phase: h.phaseNow()})
	}
	return nil
}

// participants returns the healthy members and the pending clients.
func (h *host) participants() map[identity.ID]bool {
	ids := make(map[identity.ID]bool, len(h.state.Epoch.Clients)+len(h.state.Pending))
	for _, c := range h.state.Epoch.Clients {
		if c.State == coordinator.Healthy {
			ids[identity.ID(c.ID)] = true
		}
	}
	for _, c := range h.state.Pending {
		ids[identity.ID(c.ID)] = true
	}
	return ids
}

// withdrawGone withdraws participants that had no connection for the grace period. After a
// start nobody has been missed yet, so everybody has the whole period to come back.
func (h *host) withdrawGone(now time.Time) error {
	if h.options.WithdrawGrace < 0 || h.state.RunState == coordinator.Finished {
		return nil
	}
	participants := h.participants()
	for id := range h.gone {
		if !participants[id] || h.registry.isLive(id) {
			delete(h.gone, id)
		}
	}
	for id := range participants {
		if h.registry.isLive(id) {
			continue
		}
		since, known := h.gone[id]
		if !known {
			h.gone[id] = now
		} else if now.Sub(since) >= h.options.WithdrawGrace {
			delete(h.gone, id)
			if err := h.withdraw(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// withdraw applies a Withdraw that the host signs itself.
func (h *host) withdraw(id identity.ID) error {
	h.logger.Info("withdrawing a client whose connection is gone", "client", id, "grace", h.options.WithdrawGrace)
	h.nonce++
	raw := wire.SignAction(h.key, h.runID, h.nonce, coordinator.Withdraw{Client: coordinator.ClientID(id)})
	action, err := wire.OpenAction(raw, h.runID)
	if err != nil {
		return fmt.Errorf("host's own action: %w", err)
	}
	_, err = h.apply(action)
	return err
}

// publish shows the connections the newest state and peers, if they are new. A change within
// a phase, such as one more witness, may wait for a tick: with hundreds of clients most of
// the traffic would be states that differ in one witness.
func (h *host) publish() {
	published := publication{}
	if newest := h.newest.Load(); newest != nil {
		published = *newest
		if phase := h.phaseNow(); phase == *h.phase.Load() && time.Since(h.seenAt) < pushInterval {
			return
		}
	}
	peers := frame.AppendPeers(nil, h.registry.peers(h.participants()))
	peersAreNew := published.peers == nil || !bytes.Equal(peers, h.peersSent)
	if h.stateSeen && !peersAreNew {
		return
	}
	h.version++
	if !h.stateSeen {
		h.stateSeen, h.seenAt = true, time.Now()
		published.stateVersion = h.version
		published.state = frame.Append(nil, frame.TypeState, h.state.AppendTo(nil))
		phase := h.phaseNow()
		h.phase.Store(&phase)
		if h.options.OnState != nil {
			state := h.state.Clone()
			h.options.OnState(&state)
		}
	}
	if peersAreNew {
		h.peersSent = peers
		published.peersVersion = h.version
		published.peers = frame.Append(nil, frame.TypePeers, peers)
	}
	h.newest.Store(&published)
	h.registry.wakeAll()
}

// phaseNow returns how far the run is.
func (h *host) phaseNow() Phase {
	return Phase{RunState: h.state.RunState, Epoch: h.state.Progress.Epoch, Step: h.state.Progress.Step}
}

// emit passes an event to OnEvent. Any goroutine may call it.
func (h *host) emit(e Event) {
	if h.options.OnEvent == nil {
		return
	}
	h.eventMu.Lock()
	defer h.eventMu.Unlock()
	h.options.OnEvent(e)
}
