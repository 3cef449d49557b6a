package core

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// ErrDraws means that a host does not have the draws of its run.
var ErrDraws = errors.New("not the original draws of the run")

// Now is the current time of a host.
type Now struct {
	Time  time.Time // monotonic; for disconnections and publications
	Clock uint64    // clock of the run, Unix time in milliseconds; for ticks
}

// Draws returns the random values that start the rounds of a run; see package hashchain.
type Draws interface {
	// Opening returns the draw that opens a commitment, and how many more draws can follow it.
	Opening(commitment [32]byte) (draw [32]byte, left int, ok bool)
}

// Rules are the transition functions that a host applies to a state.
type Rules struct {
	Apply func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error
	Tick  func(s *coordinator.State, now uint64, draw [32]byte) bool
	Due   func(s *coordinator.State, now uint64) (at uint64, ok bool)
}

// rules are the functions of package coordinator. All hosts use them, except the hosts of tests
// that break the rules.
var rules = Rules{(*coordinator.State).Apply, (*coordinator.State).Tick, (*coordinator.State).Due}

// Options configure a Host.
type Options struct {
	Times Times
	// Draws may be nil if the run is finished.
	Draws Draws
	// Sign signs an action of the host itself, in the form that the log contains.
	Sign func(nonce uint64, a coordinator.Action) wire.SignedAction
	// Connection reports whether a key has a live connection, and its origin.
	Connection func(id identity.ID) (from Origin, live bool)
	// Behind reports whether a connected client still waits for the log. If nil, no client does.
	Behind func(id identity.ID) bool
	Names  Names  // names in the existing log; may be nil
	Rules  *Rules // if nil, the rules of package coordinator

	// Acted, if not nil, is called for each applied action with a nil error, and for each refused
	// action with its error. The action is not durable yet.
	Acted func(a wire.SignedAction, err error)
	// Moved, if not nil, is called after each change of the run state.
	Moved func(before coordinator.RunState)
}

// Record is one entry of the run's log.
type Record struct {
	Payload []byte
	Began   []byte // the new state if the record began an epoch
}

// Update is one publication to connected clients.
type Update struct {
	State        *coordinator.State // durable; owned by the Host
	Changed      bool               // whether State differs from the previous update's state
	Participants []identity.ID      // clients that may learn each other's addresses, in ascending order
}

// Host is the host of one run. It is not safe for concurrent use.
type Host struct {
	options Options
	log     *follow.Follower
	state   *coordinator.State // state at the end of log
	names   Names
	nonce   uint64 // of the host's newest action

	gone      map[identity.ID]time.Time    // when the host first noticed that a participant was disconnected
	origins   map[identity.ID]netip.Prefix // network of each present, former or pending client, by its Join or newest connection
	holdUntil time.Time                    // no ticks before this time, while members reconnect

	records []Record // not durable yet
	answers []func() // to pending submissions
	taken   bool     // Ready has returned the records
	broken  error    // first error that stops the run

	shown     coordinator.RunState // of the newest published state
	progress  coordinator.Progress // of the newest published state
	shownAt   time.Time            // time of that publication; zero: none
	stale     bool                 // the state changed since that publication
	urgent    bool                 // the pending publication must not be delayed
	publishAt time.Time            // earliest time of the pending publication; zero: none pending
}

// New returns the host of the run that log contains, in the log's newest state.
func New(log *follow.Follower, now Now, o Options) *Host {
	if o.Rules == nil {
		o.Rules = &rules
	}
	h := &Host{
		options: o, log: log, state: &log.State, names: o.Names, stale: true,
		nonce: max(log.State.HostNonce, uint64(max(0, now.Time.UnixNano()))),
		gone:  make(map[identity.ID]time.Time), origins: make(map[identity.ID]netip.Prefix),
	}
	if h.names == nil {
		h.names = Names{}
	}
	h.awaitReturn(now)
	return h
}

// Log returns the run's log. Callers must not modify it.
func (h *Host) Log() *follow.Follower { return h.log }

// State returns the newest state of the log. Callers must not modify it.
func (h *Host) State() *coordinator.State { return h.state }

// Names returns the display names of the run's clients. Callers must not modify it.
func (h *Host) Names() Names { return h.names }

// Submit applies an action whose signature the caller has verified, and all transitions that are
// due after it. Advance calls answer with the result, which is nil if the host accepted the action.
func (h *Host) Submit(now Now, a wire.SignedAction, from Origin, answer func(error)) {
	h.mustBeIdle()
	err := h.apply(now, a, from)
	h.answers = append(h.answers, func() { answer(err) })
}

// Act applies an action of the host itself and returns its result at once.
func (h *Host) Act(now Now, a coordinator.Action) error {
	// The host's key may also have acted in another role.
	h.nonce = max(h.nonce, h.state.HostNonce) + 1
	return h.apply(now, h.options.Sign(h.nonce, a), Origin{})
}

// Tick withdraws members that were disconnected for too long, and applies due transitions.
func (h *Host) Tick(now Now) {
	h.withdrawGone(now)
	h.tick(now)
}

// Digest adds a record with the state's digest to the log. Replays verify snapshots with it.
func (h *Host) Digest() {
	h.note(follow.Record{Kind: follow.KindDigest, Digest: h.state.Hash()})
}

// Ready returns the records that must become durable before the host continues. Until the caller
// calls Advance, it may only call Ready again. After an error the host is unusable, and records
// that were not advanced are void.
func (h *Host) Ready() ([]Record, error) {
	h.taken = true
	return h.records, h.broken
}

// Advance must be called once the records of Ready are durable. It calls publish, unless the
// publication is delayed, and then answers submissions.
func (h *Host) Advance(now Now, publish func(Update)) {
	if !h.taken {
		panic("core: Advance before Ready")
	}
	answers := h.answers
	h.records, h.answers, h.taken = nil, nil, false
	h.publish(now, publish)
	for _, answer := range answers {
		answer()
	}
}

// AdvanceUnsaved calls Ready and Advance, for hosts without a disk.
func (h *Host) AdvanceUnsaved(now Now, publish func(Update)) ([]Record, error) {
	records, err := h.Ready()
	if err == nil {
		h.Advance(now, publish)
	}
	return records, err
}

// apply applies one action.
func (h *Host) apply(now Now, a wire.SignedAction, from Origin) error {
	before := h.state.RunState
	err := h.seatRefused(a, from)
	if update, is := a.Action.(coordinator.UpdateConfig); err == nil && is && h.options.Draws != nil {
		err = Suffice(h.options.Draws, h.state, update.Config)
	}
	if err == nil {
		err = h.options.Rules.Apply(h.state, coordinator.ClientID(a.From), a.Nonce, a.Action)
	}
	if h.options.Acted != nil {
		h.options.Acted(a, err)
	}
	if err != nil {
		if _, refused := errors.AsType[coordinator.Code](err); !refused && h.broken == nil {
			h.broken = fmt.Errorf("apply %s: %w", follow.ActionName(a.Action), err)
		}
		return err
	}
	h.names.Note(coordinator.ClientID(a.From), a.Action, h.state)
	switch a.Action.(type) {
	case coordinator.Join, coordinator.Withdraw, coordinator.Ready, coordinator.WitnessRound, coordinator.ReportCheckpoint:
	default:
		h.urgent = true // people expect to see the effect of their action at once
	}
	h.record(follow.Record{Kind: follow.KindAction, Action: a}, before)
	h.tick(now)
	return nil
}

// tick applies all due transitions, at most as many in a row as there are states.
func (h *Host) tick(now Now) {
	if h.holding(now) {
		return
	}
	for range int(coordinator.Paused) {
		before, committed := h.state.RunState, h.state.DrawCommitment
		var draw [32]byte
		if h.options.Draws != nil && before != coordinator.Finished {
			var ok bool
			if draw, _, ok = h.options.Draws.Opening(committed); !ok {
				if h.broken == nil {
					h.broken = fmt.Errorf("run %s: %w, or all draws are used", h.state.RunID, ErrDraws)
				}
				return
			}
		}
		if !h.options.Rules.Tick(h.state, now.Clock, draw) {
			return
		}
		if h.state.DrawCommitment == committed {
			draw = [32]byte{} // it belongs to a future round and must stay secret
		}
		h.record(follow.Record{Kind: follow.KindTick, Now: now.Clock, Draw: draw}, before)
	}
}

// Suffice returns an error if draws has too few draws for the remaining rounds of the run under the
// config c.
func Suffice(draws Draws, s *coordinator.State, c coordinator.Config) error {
	_, left, ok := draws.Opening(s.DrawCommitment)
	if !ok {
		return fmt.Errorf("run %s: %w: the draws do not contain the run's commitment", s.RunID, ErrDraws)
	}
	begun := s.Progress.Step - 1
	if s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness {
		begun++
	}
	if limit := uint64(begun) + uint64(left) + 1; uint64(c.TotalSteps) > limit {
		return &coordinator.ConfigError{Key: "total_steps", Problem: fmt.Sprintf(
			"%d exceeds the %d draws to which the host committed; begin another run from the checkpoint", c.TotalSteps, limit)}
	}
	return nil
}

// record adds a record that changed the state to the log.
func (h *Host) record(r follow.Record, before coordinator.RunState) {
	h.stale = true
	h.note(r)
	if h.state.RunState != before && h.options.Moved != nil {
		h.options.Moved(before)
	}
}

func (h *Host) note(r follow.Record) {
	h.mustBeIdle()
	record := Record{Payload: r.AppendTo(nil)}
	h.log.Note(record.Payload)
	if h.log.Epoch().Index == h.log.Head().Index {
		record.Began = h.state.AppendTo(nil)
	}
	h.records = append(h.records, record)
}

// mustBeIdle panics between Ready and Advance, so that Advance publishes only what Ready returned.
func (h *Host) mustBeIdle() {
	if h.taken {
		panic("core: the host changed between Ready and Advance")
	}
}

// publish publishes the newest state. It may delay a change within a phase, such as one more
// witness proof: with hundreds of clients, most traffic would be states that differ in one proof.
// If several phases passed since the last call, clients see only the newest.
func (h *Host) publish(now Now, publish func(Update)) {
	h.publishAt = time.Time{}
	participants := h.Participants()
	interval := h.options.Times.Push + h.options.Times.PushEach*time.Duration(len(participants))
	samePhase := h.state.RunState == h.shown && h.state.Progress.Step == h.progress.Step && h.state.Progress.Epoch == h.progress.Epoch
	if !h.shownAt.IsZero() && samePhase && !h.urgent && now.Time.Sub(h.shownAt) < interval {
		h.publishAt = h.shownAt.Add(interval)
		return
	}
	publish(Update{State: h.state, Changed: h.stale, Participants: participants})
	if h.stale {
		h.stale, h.urgent, h.shown, h.progress, h.shownAt = false, false, h.state.RunState, h.state.Progress, now.Time
	}
}
