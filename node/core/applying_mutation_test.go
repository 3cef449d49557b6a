package core

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// The mutations change one rule of applying rounds, or of intermediate checkpoints, each.
type (
	appliesEarly   struct{ *Member }
	takesTwo       struct{ *Member }
	answersAlways  struct{ *Member }
	forgetsOwed    struct{ *Member }
	takesClosing   struct{ *Member }
	failsForever   struct{ *Member }
	keepsWrong     struct{ *Member }
	repeatsRound   struct{ *Member }
	overtakesOwed  struct{ *Member }
	reportsWaiting struct{ *Member }
)

func (m appliesEarly) Step(now time.Time, e Event) {
	if early, is := e.(Early); is {
		early.Judge = func() Verdict { return Verdict{} }
		e = early
	}
	m.Member.Step(now, e)
}

func (m takesTwo) Step(now time.Time, e Event) {
	m.Member.Step(now, withCopies(e, func(c *Copies) { c.Busy = false }))
}

func (m answersAlways) Step(now time.Time, e Event) {
	m.Member.Step(now, withCopies(e, func(c *Copies) { c.Answered = 0 }))
}

func (m forgetsOwed) Step(now time.Time, e Event) {
	m.intermediate.owed = 0
	m.Member.Step(now, e)
}

func (m takesClosing) Step(now time.Time, e Event) {
	if idle, is := e.(Idle); is {
		r := *idle.Replica
		r.Closing = false
		e = Idle{&r, idle.Copies}
	}
	m.Member.Step(now, e)
}

func (m failsForever) Step(now time.Time, e Event) {
	m.applying.failures = min(m.applying.failures, 1)
	m.Member.Step(now, e)
}

func (m keepsWrong) Step(now time.Time, e Event) {
	if wrong, is := e.(Mispredicted); is {
		e = Mispredicted{wrong.Step - 1}
	}
	m.Member.Step(now, e)
}

func (m repeatsRound) Step(now time.Time, e Event) {
	if counted, is := e.(Counted); is {
		r := *counted.Replica
		r.Has = 0
		counted.Replica = &r
		e = counted
	}
	m.Member.Step(now, e)
}

func (m overtakesOwed) Step(now time.Time, e Event) {
	if counted, is := e.(Counted); is {
		counted.Has = func(uint32) bool { return true }
		e = counted
	}
	m.Member.Step(now, e)
}

func (m reportsWaiting) Step(now time.Time, e Event) {
	if _, is := e.(Unreported); is {
		s := *m.state
		s.RunState = coordinator.RoundTrain
		m.state = &s
	}
	m.Member.Step(now, e)
}

// withCopies returns an event with changed copies.
func withCopies(e Event, change func(*Copies)) Event {
	switch of := e.(type) {
	case Idle:
		change(&of.Copies)
		return of
	case Counted:
		change(&of.Copies)
		return of
	}
	return e
}

// Rules of applying rounds, and of intermediate checkpoints.
var (
	errTwoCopies  = errors.New("a model is taken while the previous one is hashed")
	errLeavers    = errors.New("members that leave are answered too often")
	errOwes       = errors.New("an owed model is not taken before the weights change")
	errEpochOver  = errors.New("a model is taken after the rounds of the epoch")
	errKeepsOn    = errors.New("a member continues although its trainer fails")
	errWrongBasis = errors.New("a training continues from a wrong prediction")
	errTwiceApply = errors.New("a round is applied twice")
	errNoRound    = errors.New("an intermediate checkpoint is reported outside a round")
)

// TestMutationsOfApplying checks that random histories of a member that applies rounds break no rule, and
// that they find each mutation of the rules.
func TestMutationsOfApplying(t *testing.T) {
	findMutants(t, 50, apply, []mutant{
		{"none", func(m *Member) stepper { return m }, nil},
		{"an incomplete round is applied early", func(m *Member) stepper { return appliesEarly{m} }, errIncomplete},
		{"two models are taken at a time", func(m *Member) stepper { return takesTwo{m} }, errTwoCopies},
		{"each member that leaves is answered", func(m *Member) stepper { return answersAlways{m} }, errLeavers},
		{"an owed model is forgotten", func(m *Member) stepper { return forgetsOwed{m} }, errOwes},
		{"the weights change before an owed model is taken", func(m *Member) stepper { return overtakesOwed{m} }, errOwes},
		{"a model is taken after the epoch", func(m *Member) stepper { return takesClosing{m} }, errEpochOver},
		{"failures of the trainer are forgotten", func(m *Member) stepper { return failsForever{m} }, errKeepsOn},
		{"a mispredicted training continues", func(m *Member) stepper { return keepsWrong{m} }, errWrongBasis},
		{"a round is applied twice", func(m *Member) stepper { return repeatsRound{m} }, errTwiceApply},
		{"a model is reported between epochs", func(m *Member) stepper { return reportsWaiting{m} }, errNoRound},
	})
}

// applyingLife is a random history of a member that applies rounds.
type applyingLife struct {
	stepper
	member   *Member
	chance   *rand.Rand
	state    coordinator.State
	replica  Replica
	copies   Copies
	taken    uint32 // newest step of a copy
	owed     uint32 // step of a model to take; 0: none
	answered uint32 // newest model taken for a member that left
	failed   int    // consecutive failures of the trainer
}

// apply lets a member apply rounds, and returns the rule that it breaks.
func apply(build func(*Member) stepper, seed uint64) error {
	m := New(Options{ID: me, Holdings: &script{}})
	l := &applyingLife{stepper: build(m), member: m, chance: rand.New(rand.NewPCG(seed, 4))}
	l.state.Config.RoundsPerEpoch, l.state.Epoch.StartStep, l.state.RunState = 60, 1, coordinator.RoundTrain
	l.state.Epoch.Clients = []coordinator.Client{{ID: me}, {ID: idOf("a")}}
	l.replica.Epoch.StartStep = 1
	l.copies.Has = func(step uint32) bool { return step == l.taken }
	for range 400 {
		if err := l.step(); err != nil {
			return err
		}
	}
	return nil
}

func (l *applyingLife) maybe() bool { return l.chance.IntN(2) == 0 }

// pass passes an event, and returns its effects.
func (l *applyingLife) pass(e Event) Ready {
	l.copies.Answered = l.answered
	l.Step(time.Unix(1000, 0), e)
	defer l.Advance()
	return l.Ready()
}

// step makes one event happen.
func (l *applyingLife) step() error {
	s := l.state
	s.Progress.Step, s.Epoch.Commit.Step = l.replica.Step+3, l.state.Epoch.Commit.Step
	s.RunState = []coordinator.RunState{coordinator.RoundTrain, coordinator.Cooldown}[l.chance.IntN(5)/4]
	other := coordinator.Client{ID: idOf("a")}
	if l.maybe() {
		other.State, other.Report.Step = coordinator.Withdrawn, l.replica.Step
	}
	s.Epoch.Clients = []coordinator.Client{{ID: me}, other}
	l.pass(Seen{&s})
	l.replica.Closing = s.RunState == coordinator.Cooldown
	switch l.chance.IntN(8) {
	case 0:
		if len(l.pass(Unreported{coordinator.Recorded{Step: 1}}).Submit) > 0 && s.RunState != coordinator.RoundTrain {
			return errNoRound
		}
		l.member.Actions = Actions{}
	case 1:
		l.copies.Busy = l.copies.Busy && l.maybe()
	case 2:
		return l.idle()
	default:
		return l.round()
	}
	return nil
}

// idle lets an idle trainer take a model.
func (l *applyingLife) idle() error {
	next, takes := l.pass(Idle{&l.replica, l.copies}).Next.(Snapshot)
	if owes := l.owed == l.replica.Step && l.owed != 0; owes && !takes && !l.replica.Closing && !l.copies.Busy && l.taken != l.owed {
		return errOwes
	}
	if !takes {
		return nil
	}
	if l.replica.Closing {
		return errEpochOver
	}
	return l.takes(next.Step)
}

// takes checks that the member may take a model now.
func (l *applyingLife) takes(step uint32) error {
	switch {
	case l.copies.Busy:
		return errTwoCopies
	case l.owed != step && l.answered != 0 && step-l.answered < 3:
		return errLeavers
	case l.owed != step:
		l.answered = step
	}
	l.copies.Busy, l.taken, l.owed = true, step, 0
	return nil
}

// round applies the next round.
func (l *applyingLife) round() error {
	step, v := l.replica.Step+1, Verdict{Missing: l.chance.IntN(4) / 3, Unsure: l.chance.IntN(4) == 0}
	if l.pass(Early{Step: step, Want: step, Known: true, Judge: func() Verdict { return v }}).Next == nil {
		return nil
	}
	if v != (Verdict{}) {
		return errIncomplete
	}
	if l.chance.IntN(4) == 0 {
		return l.mispredicts(step)
	}
	confirmed, owed := l.maybe(), l.owed == l.replica.Step && l.owed != 0 && l.taken != l.owed && !l.copies.Busy && !l.replica.Closing
	if l.replica.Has = 0; l.chance.IntN(4) == 0 {
		l.replica.Has = step
	}
	ready := l.pass(Counted{&l.replica, step, confirmed, l.copies})
	if ready.Included {
		l.failed = 0
		if confirmed && l.due(step) {
			l.owed = step
		}
		l.replica.Step = step
		return nil
	}
	switch next := ready.Next.(type) {
	case Snapshot:
		return l.takes(next.Step)
	case Apply:
		if l.replica.Has >= step {
			return errTwiceApply
		}
		if owed {
			return errOwes
		}
		return l.applies(next)
	}
	return nil
}

// due reports whether the model after a step is due, by the schedule of an epoch whose members never agree.
func (l *applyingLife) due(step uint32) bool {
	return !l.copies.Busy && !l.replica.Closing && step%3 == 0 && step/3&(step/3-1) == 0
}

// applies lets the trainer apply a round. It may fail.
func (l *applyingLife) applies(w Apply) error {
	if w.Take {
		if l.copies.Busy {
			return errTwoCopies
		}
		l.copies.Busy, l.taken = true, w.Step
	}
	e := Applied{Step: w.Step}
	if l.maybe() {
		e.Err = errors.New("no memory")
	}
	ready := l.pass(e)
	if e.Err == nil {
		l.failed, l.replica.Step = 0, w.Step
		return nil
	}
	if l.failed++; l.failed >= maxApplyFailures && ready.Fail == nil {
		return errKeepsOn
	}
	return nil
}

// mispredicts lets a training begin ahead, from a prediction that proves wrong.
func (l *applyingLife) mispredicts(step uint32) error {
	stopped := false
	id := l.member.Jobs.Start(Train{Step: step + 1, Ahead: true}, func() { stopped = true })
	defer l.member.Jobs.Done(id)
	if l.pass(Mispredicted{step}); !stopped {
		return errWrongBasis
	}
	return nil
}
