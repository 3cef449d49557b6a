package auditor

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// trial is an open trial of the run, and what this client has found out about it.
type trial struct {
	auditCase
	state   coordinator.Trial // newest known
	seed    uint64            // of the round after the accusation, for the challenge
	drawn   bool              // the seed is known
	ready   uint32            // step of the round since which only the recomputation is lacking; 0: more is
	pressed bool              // the own training has waited for the recomputation
}

// jurorAsks returns how long a juror asks the accused for its challenge, one part, before the juror finds it silent:
// half a minute, and the time in which a quarter of a link of 0.25 Mbit/s carries the part. A trial ends after a
// minute.
func jurorAsks(of env.Auditor) askingTime {
	return askingTime{30*time.Second + time.Duration(partSize(of))*time.Second/challengeRate, 4, 2}
}

// challengeRate is in bytes per second.
const challengeRate = 8 << 10

// findTrials takes up the trials that are new in the state, and forgets those that ended.
func (a *Auditor) findTrials() {
	s := a.Client.State()
	open := make(map[resultID]bool, len(s.Trials))
	for i := range s.Trials {
		t := s.Trials[i]
		key := resultID{Trainer: t.Accused, Step: t.Step}
		open[key] = true
		if a.trials[key] == nil {
			a.trials[key] = &trial{auditCase: auditCase{resultID: key}}
		}
		j := a.trials[key]
		j.state = t
		if r := s.RoundOfStep(t.Since + 1); !j.drawn && r != nil {
			j.seed, j.drawn = r.Seed, true
		}
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
		return // before the jury is drawn it may be this client that has to know
	}
	if !j.isOver() {
		a.pursueTrial(j)
	}
	if j.phase == waitsForEngine && j.ready == 0 {
		j.ready = a.Client.State().Progress.Step
	}
	if j.isOver() && juror {
		a.vote(j)
	}
}

// pursueTrial works on a trial until this client knows the answer. A jury about silence asks for one part of the
// opening: the smallest amount of data that answers the question, so that a slow link can answer a whole jury in time.
// The accusation names the part if the accuser has others; else the accused cannot know which part before it is accused.
// A wrong result shows in the part as it does in an audit.
func (a *Auditor) pursueTrial(j *trial) {
	t := &j.state
	m := manner{others: func() []identity.ID { return a.others(t.Accused, t.Accuser) }, engine: true}
	if !t.Fault.IsSilence() {
		a.pursue(&j.auditCase, m)
		return
	}
	if !j.drawn && a.Client.State().Progress.Step <= t.Since+1 {
		return
	}
	m.challenge = j.challenge // if this client missed the round, with a seed of zero: it judges by another part
	a.pursue(&j.auditCase, m)
	if a.isSilent(&j.auditCase, jurorAsks(a.Engine.Auditor())) {
		j.end(silent, "asked %d times for one part, nobody has it", j.gathered.trainer.asked)
	}
}

// challenge returns the one chunk of an opening that a jury about silence asks for: the one that the accusation names, or
// one that the seed draws.
func (j *trial) challenge(drawn []uint32) []uint32 {
	if i, named := j.state.Fault.Part(); named && i < len(drawn) {
		return drawn[i : i+1]
	}
	b := binary.LittleEndian.AppendUint64([]byte(domainChallenge), j.seed)
	b = binary.LittleEndian.AppendUint32(append(b, j.Trainer[:]...), j.Step)
	sum := sha256.Sum256(b)
	i := binary.LittleEndian.Uint64(sum[:]) % uint64(len(drawn))
	return drawn[i : i+1]
}

// domainChallenge separates the challenge of a jury from other uses of a round's seed.
const domainChallenge = "psyche/audit/challenge/v1"

// idleRounds is for how many rounds, at least, a juror waits for a moment in which nothing else
// needs the trainer.
const idleRounds = 3

// isPressing reports whether half of the time for a trial is over, and no moment came in some rounds in
// which nothing else needed the trainer.
func (a *Auditor) isPressing(j *trial) bool {
	s := a.Client.State()
	return a.owes(j) && j.phase == waitsForEngine && j.ready > 0 &&
		s.Progress.Step > max(j.ready+idleRounds, j.state.Since+coordinator.TrialRounds/2) &&
		s.StateStart >= j.state.SinceTime+coordinator.TrialTime/2
}

// Press is called before a training begins, which can wait for so long without its result being late. A
// recomputation that a trial needs gets the trainer before it where that is enough: one in a round, once in
// a trial, whatever comes of it. A client that was found late before does not hurry.
func (a *Auditor) Press(leeway time.Duration) {
	s := a.Client.State()
	if a.Engine.Auditor() == nil || leeway <= 0 {
		return
	}
	for _, key := range slices.SortedFunc(maps.Keys(a.trials), resultID.Compare) {
		j := a.trials[key]
		if !a.isPressing(j) || j.pressed || a.pressed == s.Progress.Step || !a.Engine.Idle() ||
			a.took > leeway/2 || a.clientOf(a.me).Lateness != coordinator.OnTime {
			continue
		}
		j.pressed, a.pressed = true, s.Progress.Step
		a.recompute(&j.auditCase, manner{within: leeway * 3 / 4})
	}
}

// owes reports whether this client has yet to vote in a trial.
func (a *Auditor) owes(j *trial) bool {
	juror, voted := a.Client.State().Juror(a.me, j.state.Slot)
	return juror && !voted
}

// Judges reports whether this client has yet to vote in a trial.
func (a *Auditor) Judges() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(a.trials)), a.owes)
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
