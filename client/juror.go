package client

import (
	"time"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// jury is a trial that this client may have to vote in.
type jury struct {
	inquiry
	trial coordinator.Trial // newest known
	voted bool
	waits uint32 // step of the round whose training waits, or has waited, for it; 0: none
}

// jurorAsks is for how long a juror asks before it says that somebody is silent.
var jurorAsks = askingTime{30 * time.Second, 4}

// findTrials begins to look at what is on trial, and forgets what is not any more.
func (n duty) findTrials() {
	d, s := n.seat.duties, n.run.state
	open := make(map[audits.Key]bool, len(s.Trials))
	for i := range s.Trials {
		t := s.Trials[i]
		key := audits.Key{Trainer: t.Accused, Step: t.Step}
		open[key] = true
		if d.trials[key] == nil {
			d.trials[key] = &jury{inquiry: newInquiry(key)}
		}
		d.trials[key].trial = t
	}
	for key := range d.trials {
		if !open[key] {
			delete(d.trials, key)
			delete(d.reviews, key) // nobody is accused of the same again
			d.openings.Drop(key)
		}
	}
}

// judge goes on with a trial.
func (n duty) judge(j *jury) {
	me, t := n.run.myself(), &j.trial
	if me == t.Accused || me == t.Accuser {
		return
	}
	juror, voted := n.run.state.Juror(me, t.Slot)
	if voted || t.Jurors > 0 && !juror {
		return
	}
	if j.phase != isOver {
		n.inquire(&j.inquiry, manner{
			holders: n.holders(t.Accused, t.Accuser), limits: audit.Precision.Limits,
			engine: true, urgent: n.presses(j),
		})
		if t.Fault == coordinator.FaultSilent && n.isSilent(&j.inquiry, jurorAsks) {
			j.end(silent, "asked %d times, nobody has what it should have opened", j.poll.asked)
		}
	}
	if j.phase == isOver && juror {
		n.vote(j)
	}
}

// presses reports whether the own training waits in this round for an examination: it does once in a
// trial, when half of the time for it is over without a moment in which nothing else needed the trainer,
// and only if it costs nothing to be late.
func (n duty) presses(j *jury) bool {
	s := n.run.state
	juror, voted := s.Juror(n.run.myself(), j.trial.Slot)
	if !juror || voted || j.phase != waitsForEngine || s.RunState != coordinator.RoundTrain {
		return false
	}
	if s.Progress.Step <= j.trial.Since+coordinator.TrialRounds/2 || s.StateStart < j.trial.SinceTime+coordinator.TrialTime/2 {
		return false
	}
	if j.waits == 0 && n.run.clientOf(n.run.myself()).Lateness == coordinator.OnTime {
		j.waits = s.Progress.Step
	}
	return j.waits == s.Progress.Step
}

// waitsForTrial reports whether the own training of the running round waits.
func (n duty) waitsForTrial() bool {
	if n.auditor() == nil {
		return false
	}
	for _, j := range n.seat.duties.trials {
		if n.presses(j) {
			return true
		}
	}
	if n.engine.op != nil {
		n.engine.op.urgent = false // its round is over
	}
	return false
}

// judges reports whether a trial waits for the trainer.
func (n duty) judges() bool {
	for _, j := range n.seat.duties.trials {
		if juror, voted := n.run.state.Juror(n.run.myself(), j.trial.Slot); juror && !voted && j.phase == waitsForEngine {
			return true
		}
	}
	return false
}

// vote says what this client found. Who cannot know says nothing.
func (n duty) vote(j *jury) {
	if !j.voted {
		j.voted = true
		n.tell(&j.inquiry)
	}
	n.seat.duties.compareData(&j.inquiry)
	if j.outcome == unclear || j.outcome == wrongData || j.differ && !n.seat.duties.readsRight() {
		return
	}
	v := coordinator.Vote{Step: j.Step, Client: j.Trainer, Guilty: j.outcome.guilty()}
	accused := identity.ID(j.Trainer)
	n.errands.submit("vote on "+accused.String(), j.Key, v, func() {
		n.report.log.Info("voted", "accused", accused.Short(), "step", j.Step, "guilty", v.Guilty, "why", j.reason)
		n.report.emit(event.Voted{Step: j.Step, Accused: accused.String(), Guilty: v.Guilty, Detail: j.reason})
	})
}
