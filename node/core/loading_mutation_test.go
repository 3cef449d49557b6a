package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// The mutations change one rule of Warmup, or of the return to an epoch, each.
type (
	loadsAtOnce    struct{ *Member }
	forgetsDiffers struct{ *Member }
	skipsPrepare   struct{ *Member }
	takesAnyModel  struct{ *Member }
	triesForever   struct{ *Member }
	neverGivesUp   struct{ *Member }
	assumesTallies struct{ *Member }
	believesReplay struct{ *Member }
	keepsReplay    struct{ *Member }
	keepsLoading   struct{ *Member }
	loadsLeaving   struct{ *Member }
)

func (m loadsAtOnce) Step(now time.Time, e Event) {
	m.loading.notBefore = time.Time{}
	m.Member.Step(now, e)
}

func (m forgetsDiffers) Step(now time.Time, e Event) {
	m.loading.whole = [32]byte{}
	m.Member.Step(now, e)
}

func (m skipsPrepare) Step(now time.Time, e Event) {
	m.Member.Step(now, withTrainer(e, func(t *Trainer) { t.Prepared = true }))
}

func (m takesAnyModel) Step(now time.Time, e Event) {
	m.Member.Step(now, withTrainer(e, func(t *Trainer) {
		if t.Held != nil {
			t.Held = &Model{Step: t.Held.Step, Digest: m.state.Model.Checkpoint.Digest}
		}
	}))
}

func (m triesForever) Step(now time.Time, e Event) {
	m.returning.tries %= 2
	m.Member.Step(now, e)
}

func (m neverGivesUp) Step(now time.Time, e Event) {
	m.returning.failed = min(m.returning.failed, 1)
	m.Member.Step(now, e)
}

func (m assumesTallies) Step(now time.Time, e Event) {
	if r, is := e.(Rejoin); is {
		r.Follows = func(uint32) bool { return true }
		e = r
	}
	m.Member.Step(now, e)
}

func (m believesReplay) Step(now time.Time, e Event) {
	if r, is := e.(Replayed); is {
		r.Err = nil
		e = r
	}
	m.Member.Step(now, e)
}

func (m keepsReplay) Step(now time.Time, e Event) {
	before := m.Jobs.generations[Return]
	m.Member.Step(now, e)
	m.Jobs.generations[Return] = before
}

func (m keepsLoading) Step(now time.Time, e Event) {
	if look, is := e.(Look); is {
		m.now = now
		m.seat.look(&m.common, &m.returning, look)
		return
	}
	m.Member.Step(now, e)
}

func (m loadsLeaving) Step(now time.Time, e Event) {
	m.Leave = Leave{}
	m.Member.Step(now, e)
}

// withTrainer returns an event with a changed trainer.
func withTrainer(e Event, change func(*Trainer)) Event {
	switch of := e.(type) {
	case Warmup:
		change(&of.Trainer)
		return of
	case Rejoin:
		change(&of.Trainer)
		return of
	}
	return e
}

// Rules of Warmup, and of the return to an epoch.
var (
	errBusyTrainer = errors.New("work starts while the trainer is busy")
	errNoPause     = errors.New("a member asks again at once, although no source had the model")
	errResults     = errors.New("results are used that do not lead to the model")
	errUnprepared  = errors.New("a member enters an epoch before its optimizer is set up")
	errOtherModel  = errors.New("a member enters an epoch with another model")
	errTakenTries  = errors.New("a member asks for an intermediate checkpoint too often")
	errFailures    = errors.New("a member that failed too often returns in the same term")
	errTallies     = errors.New("a member enters an epoch although it missed a round")
	errReplica     = errors.New("a member enters an epoch with a replica that no quorum signed")
	errLoads       = errors.New("a member loads a model that it does not need")
)

// TestMutationsOfLoading checks that random histories of a member that gets models break no rule, and that
// they find each mutation of the rules.
func TestMutationsOfLoading(t *testing.T) {
	findMutants(t, 100, search, []mutant{
		{"none", func(m *Member) stepper { return m }, nil},
		{"there is no pause between two attempts", func(m *Member) stepper { return loadsAtOnce{m} }, errNoPause},
		{"results that do not lead to the model are used again", func(m *Member) stepper { return forgetsDiffers{m} }, errResults},
		{"the optimizer is not set up", func(m *Member) stepper { return skipsPrepare{m} }, errUnprepared},
		{"another model is used", func(m *Member) stepper { return takesAnyModel{m} }, errOtherModel},
		{"an intermediate checkpoint is tried forever", func(m *Member) stepper { return triesForever{m} }, errTakenTries},
		{"failures are forgotten", func(m *Member) stepper { return neverGivesUp{m} }, errFailures},
		{"missed rounds are ignored", func(m *Member) stepper { return assumesTallies{m} }, errTallies},
		{"a failed replay counts", func(m *Member) stepper { return believesReplay{m} }, errReplica},
		{"a replay of an earlier return counts", func(m *Member) stepper { return keepsReplay{m} }, errStale},
		{"a load continues that is not needed", func(m *Member) stepper { return keepsLoading{m} }, errLoads},
		{"a leaving member loads", func(m *Member) stepper { return loadsLeaving{m} }, errLoads},
	})
}

// searching is a random history of a member that gets models.
type searching struct {
	stepper
	member    *Member
	chance    *rand.Rand
	now       time.Time
	state     *coordinator.State
	trainer   Trainer
	work      Work // of the trainer; nil: it is idle
	id        ID
	cancelled bool
	stale     bool   // the return has begun again since the work started
	tallies   uint32 // first round that the member tallies
	leaving   bool

	paused   time.Time // end of the pause after no source had the model
	whole    [32]byte  // digest of the newest model that results do not lead to
	epoch    Epoch     // of the return
	tries    int       // of intermediate checkpoints in this return
	fails    failures
	replays  byte              // number of replays
	replicas map[[32]byte]bool // that a quorum signed, in this return
}

// search lets a member search for models, and returns the rule that it breaks.
func search(build func(*Member) stepper, seed uint64) error {
	m := New(Options{ID: me, AcceptLoss: true, Holdings: &script{}})
	h := &searching{stepper: build(m), member: m, chance: rand.New(rand.NewPCG(seed, 3)), now: time.Unix(1000, 0), replicas: map[[32]byte]bool{}}
	h.see()
	if err := h.pass(Began{}); err != nil {
		return err
	}
	for range 400 {
		h.now = h.now.Add(time.Duration(h.chance.IntN(800)) * time.Millisecond)
		if err := h.step(); err != nil {
			return err
		}
	}
	return nil
}

// step makes one event happen, after which the member looks for its model.
func (h *searching) step() error {
	switch n := h.chance.IntN(40); {
	case n < 3:
		h.see()
	case n < 20 && h.work != nil:
		if err := h.end(); err != nil {
			return err
		}
	case n == 20:
		h.trainer.Redefined = true
	case n == 21:
		h.trainer.Held, h.trainer.Prepared = nil, false
		if err := h.pass(Lost{}); err != nil {
			return err
		}
		h.renew()
		h.tries, h.replicas, h.stale = 0, map[[32]byte]bool{}, true
		h.fails.add(h.epoch.term(h.state.Progress.Step))
	case n == 22 && h.chance.IntN(20) == 0:
		h.leaving = true
		h.member.Leave.Begin(h.now, time.Second)
	case n < 25:
		h.tallies = h.state.Progress.Step - uint32(h.chance.IntN(4))
	}
	if err := h.pass(Look{Trainer: h.trainer}); err != nil {
		return err
	}
	if w, loads := h.work.(Load); loads && w.From != h.state.Model.Checkpoint && !h.cancelled {
		return fmt.Errorf("%w: the run's checkpoint has changed", errLoads)
	}
	if h.state.RunState == coordinator.Warmup {
		return h.pass(Warmup{Trainer: h.trainer})
	}
	h.renew()
	return h.pass(Rejoin{
		Trainer: h.trainer, Lag: 1,
		Follows: func(step uint32) bool { return step+1 >= h.tallies },
		Leads:   func(after, until uint32) bool { return after >= until || after+1 >= h.tallies },
	})
}

// renew begins the return to another epoch.
func (h *searching) renew() {
	if now := EpochOf(h.state); h.epoch != now {
		h.epoch, h.tries, h.fails, h.replicas, h.stale = now, 0, failures{}, map[[32]byte]bool{}, true
	}
}

// see passes a state of the run: a Warmup, or a round that follows it.
func (h *searching) see() {
	s := &coordinator.State{RunState: coordinator.RoundTrain}
	s.Epoch.StartStep, s.OriginStep, s.Config.WarmupTime = 10, 1, 1000
	if h.state != nil {
		s.Epoch.StartStep = h.state.Epoch.StartStep
	}
	if h.chance.IntN(4) == 0 {
		s.RunState = coordinator.Warmup
		s.Epoch.StartStep += 10
	}
	s.Progress.Step = s.Epoch.StartStep + 4 + uint32(h.chance.IntN(2))
	s.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Step: s.Epoch.StartStep - 1, Digest: digestOf(s.Epoch.StartStep - 1)}
	if h.chance.IntN(3) > 0 {
		step := s.Epoch.StartStep + uint32(h.chance.IntN(2))
		s.Epoch.Commit = coordinator.Recorded{Step: step, Digest: digestOf(step)}
	}
	s.Epoch.Rounds = []coordinator.Round{{Step: s.Progress.Step - 1, WitnessesNeeded: 1, Witnesses: make([]coordinator.Witness, 1)}}
	s.Epoch.Clients = []coordinator.Client{{ID: me}}
	if h.state != nil && h.state.Epoch.StartStep != s.Epoch.StartStep {
		h.tallies = 0
	}
	h.state = s
	_ = h.pass(Seen{s})
}

// end ends the trainer's work.
func (h *searching) end() error {
	w, wanted := h.work, h.member.Jobs.Done(h.id)
	h.work = nil
	switch w := w.(type) {
	case Load:
		e := Obtained{Load: w, Fault: Fault(h.chance.IntN(4)), Err: errors.New("no model")}
		if e.Fault == NoMemory {
			e.Fault = NoHolder
		}
		h.trainer = Trainer{}
		switch e.Fault {
		case NoFault:
			h.trainer.Held = &Model{Step: w.Wanted().Step, Digest: w.Wanted().Digest, Origin: w.Wanted()}
			h.trainer.Start = [32]byte{1}
		case NoHolder:
			if w.Taken.Step == 0 {
				h.paused = h.now.Add(modelPause)
			}
		case ResultsDiffer:
			h.whole = w.Wanted().Digest
		}
		if h.renew(); e.Fault != NoFault && e.Fault != Cancelled && w.Taken.Step != 0 {
			h.tries++
		}
		return h.pass(e)
	case Prepare:
		h.trainer.Prepared = true
	case Replay:
		h.replays++
		e := Replayed{Until: w.Until, Hash: [32]byte{2, h.replays}, Before: [32]byte{2, h.replays}, Rounds: int(w.Until - w.After)}
		if h.chance.IntN(2) == 0 {
			e.Err = errors.New("another replica")
		}
		if wanted == h.stale {
			return errStale
		}
		if !wanted {
			return nil
		}
		if e.Err == nil {
			h.replicas[e.Hash] = true
		}
		if e.Err != nil && h.member.returning.taken.Step == 0 && w.Until > h.member.returning.step {
			h.fails.add(h.epoch.term(h.state.Progress.Step))
		}
		return h.pass(e)
	}
	return nil
}

// pass passes an event, and checks its effects.
func (h *searching) pass(e Event) error {
	h.Step(h.now, e)
	ready := h.Ready()
	defer h.Advance()
	if ready.Enter != nil {
		return h.enters(e, *ready.Enter)
	}
	if ready.Next == nil {
		return nil
	}
	if h.work != nil {
		return errBusyTrainer
	}
	_, returns := e.(Rejoin)
	switch w := ready.Next.(type) {
	case Load:
		h.trainer.Held = nil
		if w.Rebuild {
			h.whole = w.Wanted().Digest
		}
		switch {
		case !returns && h.leaving:
			return fmt.Errorf("%w: it leaves", errLoads)
		case w.Taken.Step == 0 && h.now.Before(h.paused):
			return errNoPause
		case slices.Contains(w.Sources, OwnResults) && h.whole == w.Wanted().Digest:
			return errResults
		case w.Taken.Step != 0 && h.tries >= maxTakenTries:
			return errTakenTries
		}
	case Replay:
		if w.Until > w.After {
			h.trainer.Held = nil
		}
	}
	if returns && h.fails.tooMany(h.epoch.term(h.state.Progress.Step)) {
		return errFailures
	}
	h.work, h.cancelled, h.stale = ready.Next, false, false
	h.id = h.member.Jobs.Start(h.work, func() { h.cancelled = true })
	return nil
}

// enters checks that the member may enter the epoch.
func (h *searching) enters(e Event, at Entry) error {
	_, returns := e.(Rejoin)
	switch m := h.trainer.Held; {
	case !h.trainer.Prepared:
		return errUnprepared
	case !returns && m.Digest != h.state.Model.Checkpoint.Digest:
		return errOtherModel
	case returns && at.Step+1 < h.tallies:
		return errTallies
	case returns && at.Hash != h.trainer.Start && !h.replicas[at.Hash]:
		return errReplica
	}
	return nil
}
