package auditor

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// trial is an open trial of the run, and this client's findings about it.
type trial struct {
	auditCase
	state     coordinator.Trial // newest known state
	seed      uint64            // seed of the round after the accusation; it draws the challenge
	drawn     bool              // the seed is known
	ready     uint32            // step since which only the recomputation is missing; 0: more is missing
	preempted bool              // this client's training has waited for the recomputation
}

// jurorAsks returns how long a juror asks for a part of its challenge before it finds the accused
// silent. It is half a minute plus the time to transfer the part over a quarter of a link of
// 0.25 Mbit/s. A trial ends after a minute.
func jurorAsks(of env.Auditor) askingTime {
	return askingTime{time: 30*time.Second + time.Duration(partSize(of))*time.Second/challengeRate, rounds: 4, busy: 8 * time.Second}
}

// challengeRate is a quarter of 0.25 Mbit/s, in bytes per second.
const challengeRate = 8 << 10

// findTrials adds new trials of the state and drops ended trials.
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
			if r := a.reviews[key]; r == nil || r.fault != coordinator.FaultResult || !a.trials[key].state.Fault.IsAboutParts() {
				delete(a.reviews, key) // the trial has decided what the review would accuse the trainer of
				a.openings.drop(key)
			}
			delete(a.trials, key)
		}
	}
}

// mayJudge reports whether this client may still vote in a trial. Before the jury is drawn, it may become a juror.
func (a *Auditor) mayJudge(j *trial) bool {
	t := &j.state
	return a.me != t.Accused && a.me != t.Accuser && (t.Jurors == 0 || a.owes(j))
}

// judge continues a trial.
func (a *Auditor) judge(j *trial) {
	if !a.mayJudge(j) {
		return
	}
	if !j.isOver() {
		a.pursueTrial(j)
	}
	if j.phase == waitsForEngine && j.ready == 0 {
		j.ready = a.Client.State().Progress.Step
	}
	if j.isOver() && a.owes(j) {
		a.vote(j)
	}
}

// pursueTrial works on a trial until this client knows the answer. In a trial for silence, jurors
// request only a few parts of the opening, so that an accused with a slow link can answer a whole jury
// in time. Jurors check these parts for a wrong result as an auditor does.
func (a *Auditor) pursueTrial(j *trial) {
	t := &j.state
	m := manner{others: func() []identity.ID { return a.others(t.Accused, t.Accuser) }, engine: true}
	if !t.Fault.IsAboutParts() {
		a.pursue(&j.auditCase, m)
		return
	}
	if !j.drawn && a.Client.State().Progress.Step <= t.Since+1 {
		return
	}
	size := partSize(a.Engine.Auditor())
	// If this client missed the round of the seed, the seed is zero here, and selects other parts than
	// for the rest of the jury.
	m.challenge = func(drawn []uint32) []uint32 { return j.challenge(drawn, size) }
	a.pursue(&j.auditCase, m)
	if a.isSilent(&j.auditCase, jurorAsks(a.Engine.Auditor())) {
		j.end(silent, "asked %d times for %d parts, %d are missing", j.gathered.trainer.requests, len(j.gathered.parts), bits.OnesCount64(j.gathered.missing()))
	}
}

// challengeBytes is the maximum size of the parts that a juror requests in a trial for silence. It is
// enough for two parts in a run with chunks of 64. A challenge has at least one part.
const challengeBytes = 70 << 10

// challenge returns the chunks of an opening that jurors request in a trial for silence: the chunk that
// the accusation names, if any, and chunks that the seed draws. The accused cannot know the seed
// before the accusation. One chunk of an honest result may exceed the error limit of chunks
// (audit.Limits.Chunk). With two chunks, a jury detects a result that exceeds the limit in both.
func (j *trial) challenge(drawn []uint32, partSize int) []uint32 {
	var chosen []uint32
	if i, named := j.state.Fault.Part(); named && i < len(drawn) {
		chosen = append(chosen, drawn[i])
	}
	limit := min(max(challengeBytes/max(partSize, 1), 1), mostChallenged, len(drawn))
	b := binary.LittleEndian.AppendUint64([]byte(domainChallenge), j.seed)
	b = binary.LittleEndian.AppendUint32(append(b, j.Trainer[:]...), j.Step)
	for sum := sha256.Sum256(b); len(chosen) < limit; sum = sha256.Sum256(sum[:]) {
		i := binary.LittleEndian.Uint64(sum[:]) % uint64(len(drawn))
		if !slices.Contains(chosen, drawn[i]) {
			chosen = append(chosen, drawn[i])
		}
	}
	slices.Sort(chosen)
	return chosen
}

// mostChallenged is the maximum number of parts of a challenge.
const mostChallenged = 4

// domainChallenge is the hash domain of a jury's challenge.
const domainChallenge = "psyche/audit/challenge/v1"

// idleRounds is the minimum number of rounds for which a juror waits until no other work needs the
// trainer.
const idleRounds = 3

// shouldPreempt reports whether the recomputation for a trial should delay this client's training.
// That is so if half of the trial's time is over, and other work has needed the trainer for more
// than idleRounds rounds. With shares by speed, trials last until jurors have trained nothing in many rounds, and
// recomputations may take much longer than the newest one, so the training never waits.
func (a *Auditor) shouldPreempt(j *trial) bool {
	s := a.Client.State()
	return !s.Config.SharesBySpeed && a.needsTrainer(j) && j.ready > 0 &&
		s.Progress.Step > max(j.ready+idleRounds, j.state.Since+coordinator.TrialRounds/2) &&
		s.StateStart >= j.state.SinceTime+coordinator.TrialTime/2
}

// Preempt starts the recomputation for an urgent trial before this client's training. leeway is the
// time for which the training can wait without a late result. Preempt does nothing if the leeway is
// not sufficient, or if this client was found late before. It starts at most one recomputation in a
// round and one for each trial, even if the recomputation fails.
func (a *Auditor) Preempt(leeway time.Duration) {
	s := a.Client.State()
	if a.Engine.Auditor() == nil || leeway <= 0 {
		return
	}
	for _, key := range slices.SortedFunc(maps.Keys(a.trials), resultID.compare) {
		j := a.trials[key]
		if !a.shouldPreempt(j) || j.preempted || a.preempted == s.Progress.Step || !a.Engine.Idle() ||
			a.took > leeway/2 || a.clientOf(a.me).Lateness != coordinator.OnTime {
			continue
		}
		j.preempted, a.preempted = true, s.Progress.Step
		a.recompute(&j.auditCase, manner{within: leeway * 3 / 4})
	}
}

// owes reports whether this client still has to vote in a trial.
func (a *Auditor) owes(j *trial) bool {
	juror, voted := a.Client.State().Juror(a.me, j.state.Slot)
	return juror && !voted
}

// Judges reports whether a vote of this client waits for the trainer. In other trials the client may never be able to
// vote, so its training does not wait for them.
func (a *Auditor) Judges() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(a.trials)), a.needsTrainer)
}

// needsTrainer reports whether this client still has to vote in a trial, and only the recomputation is missing.
func (a *Auditor) needsTrainer(j *trial) bool { return a.owes(j) && j.phase == waitsForEngine }

// vote votes by this client's findings. A juror without a finding does not vote.
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
