package auditor

import (
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

// trial is an open trial of the run, and what this client has found out about it.
type trial struct {
	auditCase
	state coordinator.Trial // newest known
	ready uint32            // step of the round since which only the recomputation is lacking; 0: more is
	waits uint32            // step of the round whose training waits, or waited, for the recomputation; 0: none
}

// jurorAsks is for how long, and how often, a juror asks for an opening before it finds the accused silent.
var jurorAsks = askingTime{30 * time.Second, 4}

// findTrials takes up the trials that are new in the state, and forgets those that ended.
func (a *Auditor) findTrials() {
	s := a.Client.State()
	open := make(map[resultID]bool, len(s.Trials))
	for i := range s.Trials {
		t := s.Trials[i]
		key := resultID{Trainer: t.Accused, Step: t.Step}
		open[key] = true
		if a.trials[key] == nil {
			a.trials[key] = &trial{auditCase: newCase(key)}
		}
		a.trials[key].state = t
	}
	for key := range a.trials {
		if !open[key] {
			delete(a.trials, key)
			delete(a.reviews, key) // nobody is accused of the same again
			a.openings.Drop(key)
		}
	}
}

// judge goes on with a trial.
func (a *Auditor) judge(j *trial) {
	me, t := a.me, &j.state
	if me == t.Accused || me == t.Accuser {
		return
	}
	juror, voted := a.Client.State().Juror(me, t.Slot)
	if voted || t.Jurors > 0 && !juror {
		return
	}
	if !j.isOver() {
		a.pursue(&j.auditCase, manner{
			holders: a.holders(t.Accused, t.Accuser), limits: audit.Precision.Limits,
			engine: true, urgent: a.presses(j),
		})
		if t.Fault == coordinator.FaultSilent && a.isSilent(&j.auditCase, jurorAsks) {
			j.end(silent, "asked %d times, nobody has what it should have opened", j.poll.asked)
		}
	}
	if j.isOver() && juror {
		a.vote(j)
	}
}

// patientRounds is for how many rounds, at least, a juror waits for a moment in which nothing else
// needs the trainer.
const patientRounds = 3

// presses reports whether the own training of this round waits until the gradient for a trial is
// recomputed. That happens in one round of a trial at most, and only if half of the trial's time is over,
// if the trainer was never free in patientRounds rounds, and if this client was not found late before in
// the epoch, so that being late once costs it nothing.
func (a *Auditor) presses(j *trial) bool {
	s := a.Client.State()
	juror, voted := s.Juror(a.me, j.state.Slot)
	if !juror || voted || j.phase != waitsForEngine || s.RunState != coordinator.RoundTrain {
		return false
	}
	if j.ready == 0 {
		j.ready = s.Progress.Step
	}
	if s.Progress.Step <= max(j.ready+patientRounds, j.state.Since+coordinator.TrialRounds/2) || s.StateStart < j.state.SinceTime+coordinator.TrialTime/2 {
		return false
	}
	if j.waits == 0 && a.clientOf(a.me).Lateness == coordinator.OnTime {
		j.waits = s.Progress.Step
	}
	return j.waits == s.Progress.Step
}

// TrainingWaits reports whether the own training of the running round waits for what a trial needs.
func (a *Auditor) TrainingWaits() bool {
	if a.Engine.Auditor() == nil {
		return false
	}
	for _, j := range a.trials {
		if a.presses(j) {
			return true
		}
	}
	a.Engine.Yield() // the round of what was urgent is over
	return false
}

// judges reports whether this client still has to vote in a trial for which the trainer has to recompute
// a gradient.
func (a *Auditor) judges() bool {
	for _, j := range a.trials {
		if juror, voted := a.Client.State().Juror(a.me, j.state.Slot); juror && !voted && j.phase == waitsForEngine {
			return true
		}
	}
	return false
}

// vote votes by what this client found. A juror that could not find out does not vote.
func (a *Auditor) vote(j *trial) {
	a.tell(&j.auditCase)
	a.compareData(&j.auditCase)
	if j.outcome == unclear || j.outcome == wrongData || j.differ && !a.readsRight() {
		return
	}
	v := coordinator.Vote{Step: j.Step, Client: j.Trainer, Guilty: j.outcome.guilty()}
	accused := identity.ID(j.Trainer)
	a.Submit("vote on "+accused.String(), j.resultID, v, func() {
		a.Log.Info("voted", "accused", accused.Short(), "step", j.Step, "guilty", v.Guilty, "why", j.reason)
		a.Emit(event.Voted{Step: j.Step, Accused: accused.String(), Guilty: v.Guilty, Detail: j.reason})
	})
}
