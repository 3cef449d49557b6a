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

// ErrDraws says that a host does not have the draws that its run commits it to.
var ErrDraws = errors.New("not the original draws of the run")

// Now is the time as a host sees it.
type Now struct {
	Time  time.Time // goes on steadily: how long somebody is gone, when to publish
	Clock uint64    // of the run, Unix time in milliseconds: what ticks say
}

// Draws are what the rounds of a run begin with; see package hashchain.
type Draws interface {
	// Opening returns what opens a commitment, and how many more can follow it.
	Opening(commitment [32]byte) (draw [32]byte, left int, ok bool)
}

// Rules are what a host does to a state.
type Rules struct {
	Apply func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error
	Tick  func(s *coordinator.State, now uint64, draw [32]byte) bool
	Due   func(s *coordinator.State, now uint64) (at uint64, ok bool)
}

// rules are those of package coordinator, which every host has but those that tests have break them.
var rules = Rules{(*coordinator.State).Apply, (*coordinator.State).Tick, (*coordinator.State).Due}

// Options of a Host.
type Options struct {
	Times Times
	// Draws may be nil when the run is over.
	Draws Draws
	// Sign makes an action of the host's own, as its log has it.
	Sign func(nonce uint64, a coordinator.Action) wire.SignedAction
	// Connection reports whether a key has a live connection, and from where.
	Connection func(id identity.ID) (from Origin, live bool)
	// Behind reports whether a connected client still waits for the log. Nil: no client does.
	Behind func(id identity.ID) bool
	Names  Names  // that the log until now has; nil: none
	Rules  *Rules // nil: the rules of package coordinator

	// Acted, which may be nil, is told of every action that was applied, or refused with err. It is
	// not durable yet.
	Acted func(a wire.SignedAction, err error)
	// Moved, which may be nil, is told when the run is in another state than before.
	Moved func(before coordinator.RunState)
}

// Record is one entry of the run's log.
type Record struct {
	Payload []byte
	Began   []byte // the state, if the record began an epoch
}

// Update is what a host shows to those that are connected.
type Update struct {
	State        *coordinator.State // durable; the Host's own
	Changed      bool               // it is another one than that of the update before
	Participants []identity.ID      // whose addresses all may know, ascending
}

// Host is the host of one run. One goroutine uses it.
type Host struct {
	options Options
	log     *follow.Follower
	state   *coordinator.State // of log
	names   Names
	nonce   uint64 // of the newest action of the host's own

	gone      map[identity.ID]time.Time    // when a participant's connection was missed first
	origins   map[identity.ID]netip.Prefix // networks from which clients that have a seat, had one or wait joined, or came last
	holdUntil time.Time                    // no ticks before, while old members come back

	records []Record // not durable yet
	answers []func() // to what was submitted
	taken   bool     // Ready gave the records out
	broken  error    // what keeps the run from going on, the first of it

	shown     coordinator.RunState // of the newest update that had another state
	progress  coordinator.Progress // of that update
	shownAt   time.Time            // when it was; zero: never
	stale     bool                 // the state is another one since
	urgent    bool                 // what is not published yet must not wait
	publishAt time.Time            // when what waits to be published may be; zero: nothing waits
}

// New returns the host of a run whose log leads to where it is now.
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

// Log returns the run's log. Nobody else changes it.
func (h *Host) Log() *follow.Follower { return h.log }

// State returns the state that the log leads to. Nobody else changes it.
func (h *Host) State() *coordinator.State { return h.state }

// Names returns what the clients of the run call themselves. Nobody else changes it.
func (h *Host) Names() Names { return h.names }

// Submit applies an action whose signature is verified, and what is due after it. Advance calls answer
// with what became of it: nil if it was accepted.
func (h *Host) Submit(now Now, a wire.SignedAction, from Origin, answer func(error)) {
	h.mustBeIdle()
	err := h.apply(now, a, from)
	h.answers = append(h.answers, func() { answer(err) })
}

// Act applies an action of the host's own. Nothing answers it.
func (h *Host) Act(now Now, a coordinator.Action) error {
	// Somebody may have used the host's key for another office.
	h.nonce = max(h.nonce, h.state.HostNonce) + 1
	return h.apply(now, h.options.Sign(h.nonce, a), Origin{})
}

// Tick withdraws members that are gone for too long, and moves the run on if that is due.
func (h *Host) Tick(now Now) {
	h.withdrawGone(now)
	h.tick(now)
}

// Digest adds a record of the state's digest to the log: what a snapshot is verified by.
func (h *Host) Digest() {
	h.note(follow.Record{Kind: follow.KindDigest, Digest: h.state.Hash()})
}

// Ready returns what has to be durable before the host goes on: nothing else is called until
// Advance, but Ready again. After an error the host can do nothing more, and what was not
// advanced is void.
func (h *Host) Ready() ([]Record, error) {
	h.taken = true
	return h.records, h.broken
}

// Advance is called when what Ready returned is durable. It publishes it, if it need not wait,
// and then answers.
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

// Settle is Ready and Advance of a host that waits for no disk.
func (h *Host) Settle(now Now, publish func(Update)) ([]Record, error) {
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
		h.urgent = true // people look at once what they have done
	}
	h.record(follow.Record{Kind: follow.KindAction, Action: a}, before)
	h.tick(now)
	return nil
}

// tick lets the run do what is due; at most as many transitions follow one another as there
// are states.
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
					h.broken = fmt.Errorf("run %s: %w, or they are used up", h.state.RunID, ErrDraws)
				}
				return
			}
		}
		if !h.options.Rules.Tick(h.state, now.Clock, draw) {
			return
		}
		if h.state.DrawCommitment == committed {
			draw = [32]byte{} // it is for a round to come, and nobody's business
		}
		h.record(follow.Record{Kind: follow.KindTick, Now: now.Clock, Draw: draw}, before)
	}
}

// Suffice reports whether there are draws for all rounds that a run has before it, were its rules
// those.
func Suffice(draws Draws, s *coordinator.State, c coordinator.Config) error {
	_, left, ok := draws.Opening(s.DrawCommitment)
	if !ok {
		return fmt.Errorf("run %s: %w: they do not contain the run's commitment", s.RunID, ErrDraws)
	}
	begun := s.Progress.Step - 1
	if s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness {
		begun++
	}
	if most := uint64(begun) + uint64(left) + 1; uint64(c.TotalSteps) > most {
		return &coordinator.ConfigError{Key: "total_steps", Problem: fmt.Sprintf(
			"%d exceeds the %d draws to which the host committed; begin another run from the checkpoint", c.TotalSteps, most)}
	}
	return nil
}

// record adds what has changed the state to the log.
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

// mustBeIdle keeps what Advance publishes from being more than what Ready gave out.
func (h *Host) mustBeIdle() {
	if h.taken {
		panic("core: the host changed between Ready and Advance")
	}
}

// publish shows the newest state. A change within a phase, such as one more witness, may wait a
// little: with hundreds of clients most of the traffic would be states that differ in one
// witness. Of phases that passed since the last call only the newest is seen.
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
