package auditor

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// review is the audit of a drawn result.
type review struct {
	auditCase
	fault coordinator.Fault // fault for an accusation of the trainer; 0: none
}

// maxReviews is the maximum number of concurrent reviews. With several of them, a review whose opening
// does not arrive does not delay the rest.
const maxReviews = 8

// auditorAsks returns the time without a new part after which an auditor accuses a trainer of
// silence. If the trainer has opened some parts, the auditor instead accuses it of not opening a
// certain part.
func auditorAsks(of env.Auditor) askingTime {
	return askingTime{time: time.Minute, rounds: 6, more: partTime(of)}
}

// soundness is the outcome of this client's audit of itself. Before its first accusation, it audits its
// newest result.
type soundness uint8

const (
	unknown soundness = iota
	sound
	unsound
)

// audit draws a result, and continues the open reviews. It draws for rounds in which this client does
// not train, and in the round before, so that only the gradient remains to be computed in such a
// round.
func (a *Auditor) audit() {
	step := a.Client.State().Progress.Step
	free, freeNext := a.Client.Spare()
	if free {
		a.throw(step)
	}
	if freeNext {
		a.throw(step + 1)
	}
	for _, j := range a.trials { // a trial that needs the trainer has precedence
		free = free && !a.needsTrainer(j)
	}
	for _, r := range a.inTurn() {
		key := r.resultID
		if a.isTooOld(key.Step) {
			a.forget(r)
			continue
		}
		if !r.isOver() {
			a.pursue(&r.auditCase, manner{others: func() []identity.ID { return a.others(key.Trainer) }, accuses: true, engine: free})
			if a.isSilent(&r.auditCase, auditorAsks(a.Engine.Auditor())) {
				g := &r.gathered
				r.end(silent, "asked %d times in %v; %d of %d parts arrived", g.trainer.requests, a.Tasks.Now().Sub(g.trainer.first).Round(time.Second), len(g.parts)-bits.OnesCount64(g.missing()), len(g.parts))
			}
		}
		if r.isOver() {
			a.conclude(r, free)
		}
	}
}

// inTurn returns the reviews in the order in which they use the trainer. Reviews that may end in an
// accusation are first, and then the review whose recomputation was interrupted. Then newer results
// precede older ones, because the trainer has to undo fewer rounds to recompute them.
func (a *Auditor) inTurn() []*review {
	rank := func(r *review) int {
		switch {
		case r.suspects():
			return 0
		case a.unfinished == &r.auditCase:
			return 1
		}
		return 2
	}
	return slices.SortedFunc(maps.Values(a.reviews), func(x, y *review) int {
		return cmp.Or(rank(x)-rank(y), y.compare(x.resultID))
	})
}

// suspects reports whether a check has failed, so that a second computation or an accusation is due.
func (r *review) suspects() bool { return r.failed > 0 || r.isOver() }

// throw draws a result to review in the round of a step, once for each round.
func (a *Auditor) throw(step uint32) {
	if a.thrown >= step || !a.makeRoom() {
		return
	}
	a.thrown = step
	rounds, me := a.past.Rounds(drawnRounds), a.me
	for key := range a.looked {
		if len(rounds) == 0 || key.Step < rounds[0].Step {
			delete(a.looked, key)
		}
	}
	most := a.largestAudited(rounds)
	r, found := a.random.choose(step, rounds, func(r *attestedResult) bool {
		return r.Owner != me && r.read() && r.Batch.Len() <= most && !a.looked[resultID{Trainer: r.Owner, Step: r.Header.Step}]
	})
	if !found {
		return
	}
	key := resultID{Trainer: r.Owner, Step: r.Header.Step}
	a.looked[key] = true
	a.reviews[key] = &review{auditCase: auditCase{resultID: key}}
}

// largestTimes is how many times as large as its own batch a batch may be that a member audits. A third of the members
// are at most four times slower than the fastest one (assign.CutFastest). The rest allows for rounds whose trainers are
// slower, so that all of them have larger batches.
const largestTimes = 6

// largestAudited returns the largest number of sequences of a result that this client audits. A client without a batch
// in these rounds has time for any.
func (a *Auditor) largestAudited(rounds []appliedRound) uint64 {
	own := uint64(0)
	for i := range rounds {
		for _, r := range rounds[i].Results {
			if r.Owner == a.me {
				own = max(own, r.Batch.Len())
			}
		}
	}
	if own == 0 {
		return math.MaxUint64
	}
	return largestTimes * own
}

// makeRoom reports whether one more review can start. If there are too many, it drops the oldest
// review that waits for the trainer.
func (a *Auditor) makeRoom() bool {
	if len(a.reviews) < maxReviews {
		return true
	}
	for _, r := range slices.Backward(a.inTurn()) {
		if r.phase == waitsForEngine && r.failed == 0 && a.unfinished != &r.auditCase {
			a.forget(r)
			return true
		}
	}
	return false
}

// others returns the members that may have parts of a trainer's opening, starting with the members in
// first. The trainer is not among them.
func (a *Auditor) others(trainer coordinator.ClientID, first ...coordinator.ClientID) []identity.ID {
	var ids []identity.ID
	for _, id := range first {
		if id != trainer && id != a.me {
			ids = append(ids, identity.ID(id))
		}
	}
	for _, id := range a.Client.Members() {
		if coordinator.ClientID(id) != trainer && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// conclude reports the outcome of a review, and accuses if necessary.
func (a *Auditor) conclude(r *review, free bool) {
	if a.tell(&r.auditCase) {
		a.compareData(&r.auditCase)
		switch {
		case r.outcome == silent:
			r.fault = r.silence()
		case r.outcome.guilty() && r.early: // name one part, because the jury may not get all parts either
			r.fault = coordinator.FaultPart + coordinator.Fault(r.culprit)
		case r.outcome.guilty():
			r.fault = coordinator.FaultResult
		}
	}
	if r.fault == 0 {
		a.forget(r)
		return
	}
	a.accuseOf(r, free)
}

// silence returns the fault of a trainer whose opening is incomplete: silence if nothing arrived,
// else the first missing part.
func (r *review) silence() coordinator.Fault {
	missing := r.gathered.missing()
	if missing == allParts(len(r.gathered.parts)) {
		return coordinator.FaultSilent
	}
	return coordinator.FaultPart + coordinator.Fault(bits.TrailingZeros64(missing))
}

// forget ends a review.
func (a *Auditor) forget(r *review) {
	delete(a.reviews, r.resultID)
	if a.trials[r.resultID] == nil {
		a.openings.drop(r.resultID)
	}
}

// compareData records whether a trainer read the same tokens as this client.
func (a *Auditor) compareData(q *auditCase) {
	if q.outcome == passed || q.differ {
		a.sameData[q.Trainer] = !q.differ
	}
}

// readsRight reports whether at least half of the compared trainers read the same tokens as this
// client. Otherwise this client's own data may be wrong.
func (a *Auditor) readsRight() bool {
	same := 0
	for _, s := range a.sameData {
		if s {
			same++
		}
	}
	return same > 0 && 2*same >= len(a.sameData)
}

// accuseOf accuses a trainer, once this client knows that its own computation is right.
func (a *Auditor) accuseOf(r *review, free bool) {
	s := a.Client.State()
	switch {
	case a.trials[r.resultID] != nil && r.fault == coordinator.FaultResult && a.trials[r.resultID].state.Fault.IsAboutParts():
		return // wait for the end of the trial about silence, which checks only a few parts
	case a.trials[r.resultID] != nil, a.soundness == unsound, r.differ && !a.readsRight():
		a.forget(r) // the result is already on trial, or this client may be wrong
		return
	case a.soundness == unknown:
		a.auditItself(free)
		return
	}
	accuse := coordinator.Accuse{Step: r.Step, Client: r.Trainer, Fault: r.fault}
	if s.MayAccuse(a.me, accuse) != nil {
		return // the run does not accept an accusation now; try again later
	}
	a.Submit("accuse", r.resultID, accuse, func() {
		accused := identity.ID(r.Trainer)
		a.Log.Warn("accused a trainer", "step", r.Step, "trainer", accused.Short(), "fault", r.fault, "why", r.reason)
		a.saveEvidence(&r.auditCase)
		a.Emit(event.Accused{Step: r.Step, Client: accused.String(), Fault: r.fault.String(), Detail: r.reason})
	})
}

// accusableTime and accusableRounds are the largest ages of results that a member audits. If a result is older than both,
// jurors may no longer have its data at the time of a trial.
const accusableTime = keptTime - 20*time.Second

func accusableRounds(c coordinator.Config) uint32 { return uint32(keptRounds(c) - 4) }

func (a *Auditor) isTooOld(step uint32) bool {
	s := a.Client.State()
	round, kept := a.past.round(step)
	return !kept || s.Progress.Step > step+accusableRounds(s.Config) && a.Tasks.Now().Sub(round.At) > accusableTime
}

// auditItself determines whether this client's newest result passes its own audit. If not,
// something is wrong here, and this process accuses no member.
func (a *Auditor) auditItself(free bool) {
	if a.ofItself == nil {
		key, found := a.ownNewest()
		if !found {
			return
		}
		a.ofItself = &auditCase{resultID: key}
	}
	q := a.ofItself
	a.pursue(q, manner{others: func() []identity.ID { return nil }, engine: free})
	if !q.isOver() {
		return
	}
	a.ofItself = nil // if this result cannot be judged, the next call audits a newer result
	switch {
	case q.outcome == passed:
		a.soundness = sound
	case q.outcome.guilty():
		a.soundness = unsound
		a.Log.Error("this client's own result fails its audit; accusing no member", "step", q.Step, "why", q.reason)
		a.tell(q)
	}
}

// ownNewest returns this client's newest attested and opened result.
func (a *Auditor) ownNewest() (resultID, bool) {
	rounds := a.past.Rounds(drawnRounds)
	for i := range slices.Backward(rounds) {
		key := resultID{Trainer: a.me, Step: rounds[i].Step}
		if _, found := a.past.find(key.Step, key.Trainer); found && a.openings.parts(key) != nil {
			return key, true
		}
	}
	return resultID{}, false
}
