package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/backend/tcp/frame"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/follow"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/server/admission"
	"github.com/psyche-go/psyche/wire"
)

// maxGroup bounds the actions that share one write to the disk.
const maxGroup = 256

// pushInterval and pushIntervalEach, for each participant, add up to the least time between
// two publications of the same phase: what a publication costs grows with their square.
const (
	pushInterval     = 50 * time.Millisecond
	pushIntervalEach = 2 * time.Millisecond
)

// host is one run: its state machine, its journal, and what its connections see of it.
// The fields of the first group belong to the goroutine of loop.
type host struct {
	state      *coordinator.State // of the store's log
	store      store
	nonce      uint64                       // of the newest action that the host signed
	gone       map[identity.ID]time.Time    // when a participant's connection was missed first
	origins    map[identity.ID]netip.Prefix // from where who has a seat, had one or waits joined or came last
	oneAddress bool                         // that all clients come from one address was said
	holdUntil  time.Time                    // no ticks before, while old members come back
	stateSeen  bool                         // the newest state is published
	seenAt     time.Time                    // when a state was published last
	publishAt  time.Time                    // when what waits to be published may be; zero: nothing waits
	noted      uint64                       // records up to the newest epoch that certs know
	urgent     bool                         // what is not published yet must not wait

	server   *server
	runID    string
	run      [32]byte // hash that names the run in what is signed
	genesis  []byte   // signed bytes that the run began with
	key      identity.Key
	options  Options
	logger   *slog.Logger
	registry *registry
	certs    certs
	growth   *admission.Budget // of actions that may be repeated for ever and make the journal longer
	requests chan request
	newest   atomic.Pointer[publication]
	logSize  atomic.Int64          // bytes of the journal that are on the disk
	beat     atomic.Int64          // Unix time in nanoseconds at which loop was alive
	trouble  atomic.Pointer[error] // what keeps the run from going on
}

// request is an action that waits for the host.
type request struct {
	action wire.SignedAction
	from   net.Addr       // of its connection
	reply  chan<- verdict // has room for the answer
}

// verdict is what became of an action.
type verdict struct {
	code   coordinator.Code // 0: accepted
	reason string           // beyond the code
}

// refusedBy returns the verdict of a refusal by the state machine; ok is false for an error
// that is none.
func refusedBy(err error) (v verdict, ok bool) {
	if !errors.As(err, &v.code) {
		return v, false
	}
	if text := err.Error(); text != v.code.Error() {
		v.reason = text
	}
	return v, true
}

func newHost(server *server, s store) *host {
	o := server.options
	h := &host{
		state: &s.log.State,
		store: s,
		nonce: max(s.log.State.HostNonce, uint64(max(0, time.Now().UnixNano()))),
		gone:  make(map[identity.ID]time.Time), origins: make(map[identity.ID]netip.Prefix),
		server:   server,
		runID:    s.log.State.RunID,
		run:      s.log.Run(),
		genesis:  s.log.Genesis().Raw,
		key:      server.key,
		options:  o,
		logger:   o.Logger.With("run", s.log.State.RunID),
		registry: newRegistry(server.strangers, server.onlookers),
		growth:   admission.NewBudget(o.JoinsPerSecond, o.JoinsAtOnce),
		requests: make(chan request),
	}
	if identity.ID(h.state.Authority.Main) == h.key.ID() && h.state.RunState != coordinator.Finished {
		h.logger.Warn("the host's own key is the run's main authority: whoever reads host-key.json can pause the run and replace its model, its data and its rules; begin runs with --main-authority and a key that is kept elsewhere", "key", h.key.ID())
	}
	h.openCerts()
	h.awaitReturn()
	h.noteLog()
	h.alive()
	if o.OnRun != nil {
		server.watchers.Lock()
		o.OnRun(h.runID, h.run)
		server.watchers.Unlock()
	}
	h.publish()
	return h
}

// openCerts takes up the certificates of epochs. Without them newcomers replay the whole log.
func (h *host) openCerts() {
	h.certs.run = h.run
	h.noted = h.store.log.Epoch().Index
	if h.store.keeps() {
		h.certs.path = CertificatesPath(h.options.SaveStateDir, h.runID)
		err := h.certs.load(&h.store)
		if err == nil {
			return
		}
		if !errors.Is(err, fs.ErrNotExist) {
			h.logger.Warn("the certificates of epochs are of no use, newcomers replay the log", "file", h.certs.path, "reason", err)
		}
	}
	if first := h.store.log.FirstEpoch(); first.Index != 0 {
		h.certs.began(first, 0, nil)
	}
}

// noteEpoch lets the members certify an epoch that has begun.
func (h *host) noteEpoch() {
	e := h.store.log.Epoch()
	if e.Index == h.noted {
		return
	}
	h.noted = e.Index
	links, _ := h.certs.way()
	first := e.Index == h.store.log.FirstEpoch().Index
	if h.store.begunState == nil || len(links) == 0 && !first {
		return // the file of certificates is gone, and with it how the first epoch began
	}
	h.certs.began(e, h.store.begunAt, h.store.begunState)
	if first {
		h.saveCerts()
	}
}

// saveCerts keeps the certificates. Without them newcomers take longer.
func (h *host) saveCerts() {
	if err := h.certs.save(); err != nil {
		h.logger.Warn("the certificates of epochs are not kept", "file", h.certs.path, "error", err)
	}
}

// awaitReturn gives participants of a run that goes on after a restart the time to come back.
func (h *host) awaitReturn() {
	participants := h.participants()
	if len(participants) == 0 || h.options.WithdrawGrace < 0 {
		return
	}
	h.holdUntil = time.Now().Add(h.options.RestartGrace)
	for id := range participants {
		h.gone[id] = h.holdUntil.Add(-h.options.WithdrawGrace)
	}
}

// noteLog tells connections how much of the journal they may read.
func (h *host) noteLog() {
	if h.store.keeps() {
		h.logSize.Store(h.store.journal.Size())
	}
}

// noteCommit tells how long it took to make durable what was accepted, if anything was.
func (h *host) noteCommit(took time.Duration) {
	before := h.logSize.Load()
	h.noteLog()
	if h.logSize.Load() != before {
		h.emit(Event{Kind: EventCommitted, Took: took, Phase: h.phaseNow()})
	}
}

// alive notes that loop works.
func (h *host) alive() { h.beat.Store(time.Now().UnixNano()) }

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
func (h *host) step(ctx context.Context, group []request) error {
	verdicts := make([]verdict, len(group))
	for i, r := range group {
		var err error
		var refused bool
		if verdicts[i], refused = h.seatRefused(r.action, r.from); refused {
			continue
		}
		if verdicts[i], err = h.apply(r.action); err != nil {
			return err
		}
	}
	if err := h.withdrawGone(time.Now()); err != nil {
		return err
	}
	if err := h.tick(); err != nil {
		return err
	}
	began := time.Now()
	if err := h.commit(ctx); err != nil {
		return err
	}
	if len(group) > 0 {
		h.server.metrics.commit.Observe(time.Since(began).Seconds())
	}
	h.noteCommit(time.Since(began))
	h.publish() // first, so that who was answered finds what it did
	for i, r := range group {
		r.reply <- verdicts[i]
	}
	if err := h.store.save(h.options.SnapshotEvery, h.logger, func() error { return h.commit(ctx) }); err != nil {
		return err
	}
	h.noteLog()
	return nil
}

// apply applies one action. The error is one of the journal.
func (h *host) apply(a wire.SignedAction) (verdict, error) {
	before := h.state.RunState
	err := h.allows(a.Action)
	if err == nil {
		err = h.state.Apply(coordinator.ClientID(a.From), a.Nonce, a.Action)
	}
	event := Event{Kind: EventAccepted, Client: a.From, Action: follow.ActionName(a.Action), Phase: h.phaseNow()}
	if err != nil {
		refused, ok := refusedBy(err)
		if !ok {
			return verdict{}, fmt.Errorf("apply %s: %w", event.Action, err)
		}
		event.Kind, event.Code = EventRefused, refused.code
		h.logRefusal("refused an action", "action", event.Action, "client", a.From, "step", h.state.Progress.Step, "reason", err)
		h.emit(event)
		return refused, nil
	}
	h.logger.Info("accepted an action", "action", event.Action, "client", a.From, "step", h.state.Progress.Step)
	h.emit(event)
	switch a.Action.(type) {
	case coordinator.Join, coordinator.Withdraw, coordinator.Ready, coordinator.WitnessRound, coordinator.ReportCheckpoint:
	default:
		h.urgent = true // people look at once what they have done
	}
	if err := h.record(follow.Record{Kind: follow.KindAction, Action: a}, before); err != nil {
		return verdict{}, err
	}
	return verdict{}, h.tick()
}

// allows refuses what the rules would take and the host could not go on with.
func (h *host) allows(a coordinator.Action) error {
	if update, ok := a.(coordinator.UpdateConfig); ok && h.store.draws != nil {
		return h.store.draws.suffice(h.state, update.Config)
	}
	return nil
}

// logRefusal logs what a client has caused, unless clients cause too much of it.
func (h *host) logRefusal(message string, values ...any) {
	if h.server.noise.Allow() {
		h.logger.Info(message, values...)
	}
}

// tick lets the state machine do what is due; at most as many transitions follow one
// another as there are states.
func (h *host) tick() error {
	if h.holding() {
		return nil
	}
	for range int(coordinator.Paused) {
		now, before, committed := h.options.Now(), h.state.RunState, h.state.DrawCommitment
		draw, err := h.draw()
		if err != nil {
			return err
		}
		if !h.state.Tick(now, draw) {
			return nil
		}
		if h.state.DrawCommitment == committed {
			draw = [32]byte{} // it is for a round to come, and nobody's business
		}
		if err := h.record(follow.Record{Kind: follow.KindTick, Now: now, Draw: draw}, before); err != nil {
			return err
		}
	}
	return nil
}

// draw returns what the next round begins with.
func (h *host) draw() ([32]byte, error) {
	if h.store.draws == nil { // the run is over
		return [32]byte{}, nil
	}
	draw, _, ok := h.store.draws.chain.Opening(h.state.DrawCommitment)
	if !ok {
		return draw, fmt.Errorf("run %s: %w, or they are used up", h.runID, ErrDraws)
	}
	return draw, nil
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
func (h *host) record(r follow.Record, before coordinator.RunState) error {
	h.stateSeen = false
	if err := h.store.append(r); err != nil {
		return err
	}
	if h.state.RunState != before {
		h.logger.Info("run state", "from", before.String(), "to", h.state.RunState.String(), "epoch", h.state.Progress.Epoch, "step", h.state.Progress.Step)
		h.emit(Event{Kind: EventTransition, Phase: h.phaseNow()})
	}
	return nil
}

// participants returns the healthy members and the pending clients; when the run is finished
// those that were in its last epoch, as long as they are connected.
func (h *host) participants() map[identity.ID]bool {
	ids := make(map[identity.ID]bool, len(h.state.Epoch.Clients)+len(h.state.Pending))
	if h.state.RunState == coordinator.Finished {
		for id := range h.lastEpoch() {
			if h.registry.isLive(id) {
				ids[id] = true
			}
		}
		return ids
	}
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

// lastEpoch returns who was in the newest epoch or waits for the next.
func (h *host) lastEpoch() map[identity.ID]bool {
	ids := make(map[identity.ID]bool)
	for _, clients := range [][]coordinator.Client{h.state.Epoch.Clients, h.state.Epoch.Exited, h.state.Pending} {
		for _, c := range clients {
			ids[identity.ID(c.ID)] = true
		}
	}
	return ids
}

// offices returns the keys that administer the run.
func (h *host) offices() map[identity.ID]bool {
	return map[identity.ID]bool{
		identity.ID(h.state.Host): true, identity.ID(h.state.Authority.Main): true, identity.ID(h.state.Authority.Join): true,
	}
}

// known returns who always finds a place: who is in the epoch, left it and may come back, or waits
// for the next one; who has an office; and in a permissioned run those who may join. All are
// bounded.
func (h *host) known() map[identity.ID]bool {
	ids := h.lastEpoch()
	maps.Copy(ids, h.offices())
	for _, a := range h.state.Authority.Authorizations {
		ids[identity.ID(a.Grantee)] = true
		for _, delegate := range a.Delegates {
			ids[identity.ID(delegate)] = true
		}
	}
	return ids
}

// withdrawGone withdraws participants that had no connection for the grace period.
func (h *host) withdrawGone(now time.Time) error {
	if !h.withdraws() {
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
	// Somebody may have used the host's key for another office.
	h.nonce = max(h.nonce, h.state.HostNonce) + 1
	raw := wire.SignAction(h.key, h.run, h.nonce, coordinator.Withdraw{Client: coordinator.ClientID(id)})
	action, err := wire.OpenAction(raw, h.run)
	if err != nil {
		return fmt.Errorf("host's own action: %w", err)
	}
	_, err = h.apply(action)
	return err
}

// publish shows the connections the newest state and peers, if they are new. A change within
// a phase, such as one more witness, may wait a little: with hundreds of clients most of the
// traffic would be states that differ in one witness. Of phases that passed since the last
// call only the newest is seen.
func (h *host) publish() {
	h.publishAt = time.Time{}
	participants, known := h.participants(), h.known()
	h.registry.seatStrangers(known)
	next := publication{phase: h.phaseNow(), participants: len(participants), known: known, offices: h.offices(), closed: h.state.Closed}
	if newest := h.newest.Load(); newest != nil {
		next.state, next.peers, next.log = newest.state, newest.peers, newest.log
		interval := pushInterval + pushIntervalEach*time.Duration(len(participants))
		if next.phase == newest.phase && !h.urgent && time.Since(h.seenAt) < interval {
			h.publishAt = h.seenAt.Add(interval)
			return
		}
	}
	peers := frame.AppendPeers(nil, h.registry.peers(participants))
	peersAreNew := next.peers.version == 0 || !bytes.Equal(peers, next.peers.payload)
	if h.stateSeen && !peersAreNew {
		return
	}
	if !h.stateSeen {
		h.stateSeen, h.urgent, h.seenAt = true, false, time.Now()
		next.state = next.state.next(frame.TypeState, frame.TypeStateDelta, h.state.AppendTo(nil))
		if next.log.index == 0 {
			next.log = beginCourse(&h.store, h.key)
		} else {
			next.log = next.log.next(h.store.log, h.store.fresh, h.store.journal.Size(), h.key)
		}
		h.store.fresh = nil
		h.noteEpoch()
		h.server.show(h.state)
	}
	if peersAreNew {
		next.peers = next.peers.next(frame.TypePeers, frame.TypePeersDelta, peers)
	}
	h.newest.Store(&next)
	h.registry.wakeAll()
}

// phaseNow returns how far the run is.
func (h *host) phaseNow() Phase {
	return Phase{RunState: h.state.RunState, Epoch: h.state.Progress.Epoch, Step: h.state.Progress.Step}
}

// emit passes an event of this run on. Any goroutine may call it.
func (h *host) emit(e Event) {
	e.RunID = h.runID
	h.server.emit(e)
}
