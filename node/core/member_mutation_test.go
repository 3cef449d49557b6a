package core

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// stepper is a Member, or a mutation of it.
type stepper interface {
	Step(now time.Time, e Event)
	Ready() Ready
	Advance()
}

// The mutations change one rule each.
type (
	forgetsFlights   struct{ *Member }
	reportsUnwritten struct{ *Member }
	remembersWrite   struct{ *Member }
	believesOldCheck struct{ *Member }
	skipsCheck       struct{ *Member }
	joinsLeaving     struct{ *Member }
	forgetsStop      struct{ *Member }
	trainsAgain      struct{ *Member }
	ignoresSigned    struct{ *Member }
	asksNobody       struct{ *Member }
	appliesTooLittle struct{ *Member }
	ignoresVotes     struct{ *Member }
	keepsOldRound    struct{ *Member }
	measuresForever  struct{ *Member }
	believesMeasure  struct{ *Member }
	delaysTraining   struct{ *Member }
)

func (m forgetsFlights) Step(now time.Time, e Event) {
	if _, answer := e.(Answered); !answer {
		for _, known := range m.Actions.kinds {
			known.flying = false
		}
	}
	m.Member.Step(now, e)
}

func (m reportsUnwritten) Step(now time.Time, e Event) {
	if _, is := e.(Persisted); is {
		e = Persisted{Done: true}
	}
	m.Member.Step(now, e)
}

func (m remembersWrite) Step(now time.Time, e Event) {
	if m.Member.Step(now, e); m.ready.Persist != nil {
		m.cooldown.persisted(&m.common, Persisted{Done: true})
	}
}

func (m believesOldCheck) Step(now time.Time, e Event) {
	if done, is := e.(Checked); is && m.seat.check != nil {
		m.Jobs.Done(done.ID)
		m.seat.check.passed = done.Err == nil && !done.Cancelled
		return
	}
	m.Member.Step(now, e)
}

func (m skipsCheck) Step(now time.Time, e Event) {
	m.Checks = false
	m.Member.Step(now, e)
}

func (m joinsLeaving) Step(now time.Time, e Event) {
	m.Leave = Leave{}
	m.Member.Step(now, e)
}

func (m forgetsStop) Step(now time.Time, e Event) {
	if stop, is := e.(Close); is {
		e = Close{Newest: stop.Newest}
	}
	if s := m.state; s != nil && s.RunState == coordinator.Cooldown {
		if _, is := e.(Close); is {
			return
		}
	}
	m.Member.Step(now, e)
}

func (m trainsAgain) Step(now time.Time, e Event) {
	if turn, is := e.(Turn); is {
		turn.Part.Trained = false
	}
	m.Member.Step(now, e)
}

func (m ignoresSigned) Step(now time.Time, e Event) {
	if turn, is := e.(Turn); is {
		turn.MaySign = true
		e = turn
	}
	m.Member.Step(now, e)
}

func (m asksNobody) Step(now time.Time, e Event) {
	if m.Member.Step(now, e); m.ready.Ask {
		m.training.tokens(&m.common, Tokens{true})
	}
}

func (m appliesTooLittle) Step(now time.Time, e Event) {
	if judged, is := e.(Judged); is {
		judged.Judge = func(bool) Verdict { return Verdict{} }
		e = judged
	}
	m.Member.Step(now, e)
}

func (m ignoresVotes) Step(now time.Time, e Event) {
	if judged, is := e.(Judged); is {
		judged.Outvoted = false
		e = judged
	}
	m.Member.Step(now, e)
}

func (m measuresForever) Step(now time.Time, e Event) {
	m.cooldown.until = now.Add(time.Hour)
	m.Member.Step(now, e)
}

func (m believesMeasure) Step(now time.Time, e Event) {
	if r, is := e.(Evaluated); is {
		r.Recorded = m.cooldown.model
		m.cooldown.state = measures
		e = r
	}
	m.Member.Step(now, e)
}

func (m keepsOldRound) Step(now time.Time, e Event) {
	if _, is := e.(InRound); is {
		return
	}
	m.Member.Step(now, e)
}

func (m delaysTraining) Step(now time.Time, e Event) {
	if urgent, is := e.(Urgent); is {
		part := *urgent.Part
		part.Opened = now
		urgent.Part = &part
		e = urgent
	}
	m.Member.Step(now, e)
}

// Rules of a member's actions.
var (
	errTwoFlights = errors.New("two actions of a kind are in flight")
	errUnwritten  = errors.New("a model is reported before it is on the disk")
	errUnchecked  = errors.New("a client joins a run that it has not checked")
	errLeaving    = errors.New("a leaving client asks for a seat")
	errTrains     = errors.New("a training continues in Cooldown")
	errAgain      = errors.New("a member trains a round twice")
	errSignedStep = errors.New("a member trains a step that it may have signed")
	errIncomplete = errors.New("a member applies a round without its results")
	errOutvoted   = errors.New("a member applies a round to a model that has no majority")
	errLateReport = errors.New("a report waits for a measurement for too long")
	errLoss       = errors.New("a report claims the loss of another model, or of none")
	errOldRound   = errors.New("a training of another round continues")
	errDelayed    = errors.New("a training is late because of a recomputation")
	errForbidden  = errors.New("a member trains without the auditor's permission")
)

// TestMutationsOfAMember checks that random histories of a member break no rule of its actions, and that
// they find each mutation of the rules.
func TestMutationsOfAMember(t *testing.T) {
	findMutants(t, 100, live, []mutant{
		{"none", func(m *Member) stepper { return m }, nil},
		{"an action in flight is forgotten", func(m *Member) stepper { return forgetsFlights{m} }, errTwoFlights},
		{"a model is reported although the disk does not have it", func(m *Member) stepper { return reportsUnwritten{m} }, errUnwritten},
		{"a model is reported without waiting for the disk", func(m *Member) stepper { return remembersWrite{m} }, errUnwritten},
		{"the result of an earlier check is applied", func(m *Member) stepper { return believesOldCheck{m} }, errUnchecked},
		{"a client joins without a check", func(m *Member) stepper { return skipsCheck{m} }, errUnchecked},
		{"a leaving client joins", func(m *Member) stepper { return joinsLeaving{m} }, errLeaving},
		{"a round is trained again", func(m *Member) stepper { return trainsAgain{m} }, errAgain},
		{"the signing record is ignored", func(m *Member) stepper { return ignoresSigned{m} }, errSignedStep},
		{"the auditor is not asked", func(m *Member) stepper { return asksNobody{m} }, errForbidden},
		{"missing results are ignored", func(m *Member) stepper { return appliesTooLittle{m} }, errIncomplete},
		{"the other members' model is ignored", func(m *Member) stepper { return ignoresVotes{m} }, errOutvoted},
		{"a measurement has no limit", func(m *Member) stepper { return measuresForever{m} }, errLateReport},
		{"the loss of another model is claimed", func(m *Member) stepper { return believesMeasure{m} }, errLoss},
		{"the training of an old round continues", func(m *Member) stepper { return keepsOldRound{m} }, errOldRound},
		{"a recomputation delays a training for too long", func(m *Member) stepper { return delaysTraining{m} }, errDelayed},
		{"the cancellation of a training is forgotten", func(m *Member) stepper { return forgetsStop{m} }, errTrains},
	})
}

// mutant is a member that breaks a rule.
type mutant struct {
	name string
	make func(m *Member) stepper
	want error // nil: it breaks no rule
}

// findMutants checks that a random history finds the error of each mutant. seeds is the largest number of histories
// of one mutant.
func findMutants(t *testing.T, seeds uint64, live func(build func(*Member) stepper, seed uint64) error, mutants []mutant) {
	t.Helper()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			for seed := range seeds {
				if err := live(m.make, seed); err != nil {
					if !errors.Is(err, m.want) {
						t.Fatalf("seed %d: %v, want %v", seed, err, m.want)
					}
					return
				}
			}
			if m.want != nil {
				t.Error("not found")
			}
		})
	}
}

// life is a random history of a member.
type life struct {
	stepper
	member     *Member
	now        time.Time
	flying     map[string]bool
	checks     map[ID]string // running checks, with the definition of the run
	passed     map[string]bool
	state      *coordinator.State
	held       *Model
	leaving    bool
	written    bool // the next Persisted is about a model on the disk
	trains     ID
	trainsStep uint32
	stopped    bool // the training was cancelled
	part       *Part
	trained    bool   // a training of part has started
	signed     uint32 // newest step that an earlier process may have signed
	permits    bool   // the auditor has permitted the training
	asks       bool   // the newest event asks the auditor
	reads      bool   // the newest event needs tokens
	applies    bool   // the newest event applies a round

	persists    bool // the newest event asks for a model on the disk
	measures    ID   // 0: none
	measuring   Measure
	since       time.Time              // when it began
	endsMeasure bool                   // it was cancelled
	claims      []coordinator.Recorded // models whose loss was measured
}

// live lets a member live through a random history, and returns the rule that it breaks.
func live(build func(*Member) stepper, seed uint64) error {
	chance := rand.New(rand.NewPCG(seed, 1))
	m := New(Options{ID: me, Checks: true, Folder: true, AcceptLoss: true, Holdings: &script{}})
	l := &life{stepper: build(m), member: m, now: time.Unix(1000, 0), flying: map[string]bool{}, checks: map[ID]string{}, passed: map[string]bool{}}
	for range 300 {
		if err := l.step(chance); err != nil {
			return err
		}
	}
	return nil
}

// step makes one event happen, after which the member looks at its seat and at its phase.
func (l *life) step(chance *rand.Rand) error {
	l.now = l.now.Add(time.Duration(chance.IntN(3000)) * time.Millisecond)
	switch chance.IntN(10) {
	case 8, 9:
		if err := l.evaluates(); err != nil {
			return err
		}
	case 0, 1:
		if err := l.see(chance); err != nil {
			return err
		}
	case 2, 3:
		if kinds := slices.Sorted(maps.Keys(l.flying)); len(kinds) > 0 {
			kind := kinds[chance.IntN(len(kinds))]
			answer := []error{nil, coordinator.ErrWrongEpoch, errors.New("no answer")}[chance.IntN(3)]
			delete(l.flying, kind)
			if err := l.pass(Answered{kind, answer}); err != nil {
				return err
			}
		}
	case 4, 5:
		if ids := slices.Sorted(maps.Keys(l.checks)); len(ids) > 0 {
			id := ids[chance.IntN(len(ids))]
			definition := l.checks[id]
			delete(l.checks, id)
			cancelled := chance.IntN(4) == 0
			l.passed[definition] = l.passed[definition] || !cancelled
			if err := l.pass(Checked{ID: id, Cancelled: cancelled}); err != nil {
				return err
			}
		}
	case 6:
		if l.trains != 0 {
			l.member.Jobs.Done(l.trains)
			l.trains = 0
		}
	case 7:
		if chance.IntN(20) == 0 && !l.leaving {
			l.leaving = true
			l.member.Leave.Begin(l.now, time.Second)
		}
	}
	return l.look(chance)
}

// see passes a state of the run.
func (l *life) see(chance *rand.Rand) error {
	first := l.state == nil
	s := &coordinator.State{RunState: []coordinator.RunState{coordinator.WaitingForMembers, coordinator.RoundTrain, coordinator.Cooldown}[chance.IntN(3)]}
	s.Progress.Step, s.Epoch.StartStep, s.OriginStep = uint32(2+chance.IntN(3)), 1, 1
	s.StateStart, s.Config.CooldownTime, s.Config.TotalSteps = 100_000, 20_000, 9
	s.Model.Checkpoint.Kind, s.Model.Definition = coordinator.CheckpointLocal, fmt.Append(nil, chance.IntN(3))
	switch client := (coordinator.Client{ID: me, State: coordinator.Healthy}); chance.IntN(3) {
	case 0:
		s.Epoch.Clients = append(s.Epoch.Clients, client)
	case 1:
		s.Pending = append(s.Pending, client)
	}
	l.state, l.held = s, nil
	if l.part == nil || l.part.Step != s.Progress.Step {
		part := NewPart(s.Progress.Step, false, l.now)
		l.part, l.trained, l.signed = &part, false, s.Progress.Step-uint32(chance.IntN(2))
	}
	if chance.IntN(2) == 0 {
		l.held = &Model{Step: s.Progress.Step - 1}
	}
	if err := l.pass(Seen{s}); err != nil || !first {
		return err
	}
	if err := l.pass(Measured{Underway{Tokens: 1000, Begun: 1, Took: time.Second}, true, false}); err != nil {
		return err
	}
	return l.pass(Began{})
}

// look passes what the loop of a client passes after every event.
func (l *life) look(chance *rand.Rand) error {
	if l.state == nil {
		return nil
	}
	if err := l.pass(Look{Trainer: Trainer{Held: l.held}}); err != nil {
		return err
	}
	if err := l.inRound(); err != nil {
		return err
	}
	if err := l.train(chance); err != nil {
		return err
	}
	if err := l.apply(chance); err != nil {
		return err
	}
	if err := l.pass(Close{}); err != nil || l.state.RunState != coordinator.Cooldown {
		return err
	}
	if l.trains != 0 {
		if !l.stopped {
			return errTrains
		}
		l.member.Jobs.Done(l.trains)
		l.trains = 0
	}
	l.written = false
	if err := l.pass(Cooldown{l.held}); err != nil {
		return err
	}
	persists := l.persists
	l.written = chance.IntN(2) == 0
	if err := l.pass(Persisted{l.written, HeldOut{Tokens: 300, Last: time.Second}}); err != nil {
		return err
	}
	if persists && l.measures != 0 && !l.endsMeasure && l.now.Sub(l.since) > 2*time.Second && l.member.cooldown.model == l.measuring.Recorded {
		return errLateReport
	}
	return nil
}

// evaluates ends a measurement.
func (l *life) evaluates() error {
	if l.measures == 0 {
		return nil
	}
	l.member.Jobs.Done(l.measures)
	l.measures = 0
	l.claims = append(l.claims, l.measuring.Recorded)
	return l.pass(Evaluated{Measure: l.measuring, Claim: uint16(len(l.claims))})
}

// inRound passes what the loop of a client passes in a round, before a training.
func (l *life) inRound() error {
	if l.state.RunState != coordinator.RoundTrain {
		return nil
	}
	if err := l.pass(InRound{}); err != nil {
		return err
	}
	if l.trains != 0 && l.trainsStep != l.state.Progress.Step && !l.stopped {
		return errOldRound
	}
	l.Step(l.now, Urgent{Part: l.part, Own: true, Lag: 1, Leeway: 2 * time.Second})
	defer l.Advance()
	if delay := l.Ready().Preempt; delay > 0 && !l.part.Trained && l.now.Add(delay).Sub(l.part.Opened) > 2*time.Second {
		return errDelayed
	}
	return nil
}

// apply passes what the loop of a client passes for an outstanding round.
func (l *life) apply(chance *rand.Rand) error {
	e := Judged{Step: l.part.Step, Outvoted: chance.IntN(4) == 0, MissingSince: new(time.Time), Completion: time.Second}
	v := Verdict{Missing: chance.IntN(2), Unsure: chance.IntN(2) == 0, Claimed: chance.IntN(2) == 0}
	if chance.IntN(2) == 0 {
		*e.MissingSince = l.now.Add(-time.Duration(chance.IntN(3)) * time.Second)
	}
	e.WellAnswered, e.Judge = chance.IntN(2) == 0, func(bool) Verdict { return v }
	if err := l.pass(e); err != nil || !l.applies {
		return err
	}
	switch {
	case e.Outvoted:
		return errOutvoted
	case v.Missing > 0 && (!v.Claimed || !e.WellAnswered):
		return errIncomplete
	}
	return nil
}

// train passes what the loop of a client passes for its training.
func (l *life) train(chance *rand.Rand) error {
	l.permits = false
	if err := l.pass(Turn{Part: l.part, Own: new(assign.BatchID), MaySign: l.part.Step > l.signed}); err != nil {
		return err
	}
	if l.permits = chance.IntN(2) == 0; !l.permits || !l.asks {
		return nil
	}
	if err := l.pass(Permitted{}); err != nil || !l.reads {
		return err
	}
	return l.pass(Tokens{chance.IntN(2) == 0})
}

// starts checks a training that starts.
func (l *life) starts(w Train) error {
	switch {
	case l.trained:
		return errAgain
	case l.part.Step <= l.signed:
		return errSignedStep
	case !l.permits:
		return errForbidden
	}
	l.trained, l.stopped, l.trainsStep = true, false, w.Step
	l.trains = l.member.Jobs.Start(w, func() { l.stopped = true })
	return nil
}

// pass passes an event, and checks its effects.
func (l *life) pass(e Event) error {
	l.Step(l.now, e)
	ready := l.Ready()
	for _, a := range ready.Submit {
		if l.flying[a.Kind] {
			return errTwoFlights
		}
		l.flying[a.Kind] = true
		switch a.Action.(type) {
		case coordinator.Join:
			if l.leaving {
				return errLeaving
			}
			if !l.passed[string(l.state.Model.Definition)] {
				return errUnchecked
			}
		case coordinator.ReportCheckpoint:
			if !l.written && !l.leaving {
				return errUnwritten
			}
			if r := a.Action.(coordinator.ReportCheckpoint); r.HeldOut > 0 && l.claims[r.HeldOut-1].Step != r.Step-1 {
				return errLoss
			}
		}
	}
	if w, is := ready.Next.(Measure); is {
		l.measuring, l.since, l.endsMeasure = w, l.now, false
		l.measures = l.member.Jobs.Start(w, func() { l.endsMeasure = true })
	}
	l.persists = ready.Persist != nil
	l.asks, l.reads = ready.Ask, ready.Read != nil
	_, l.applies = ready.Next.(Apply)
	if w, is := ready.Next.(Train); is {
		if err := l.starts(w); err != nil {
			return err
		}
	}
	for _, started := range ready.Start {
		l.checks[started.ID] = string(l.state.Model.Definition)
	}
	l.Advance()
	return nil
}
