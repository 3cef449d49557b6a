package client

import (
	"maps"
	"slices"
	"time"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// review is the audit of a result that the dice fell on.
type review struct {
	inquiry
	told  bool
	fault coordinator.Fault // of which its trainer is to be accused; 0: of nothing
}

// maxReviews are under way at a time: of those whose openings do not come others go on.
const maxReviews = 8

// auditorAsks is for how long an auditor asks before it accuses somebody of silence.
var auditorAsks = askingTime{time.Minute, 6}

// soundness is whether this client's own newest result passes its own audit. It is found out before
// the first accusation.
type soundness struct {
	inquiry *inquiry // nil: not looked at
	known   bool
	sound   bool
}

// audit throws the dice, and goes on with what they fell on. There is time for that in a round in
// which this client trains nothing; in the round before everything but the gradient is done.
func (n duty) audit() {
	d, step := n.seat.duties, n.run.state.Progress.Step
	free := n.replica != nil && n.isFree(n.rounds.of[step])
	if free {
		n.throw(step)
	}
	if n.replica != nil && n.isFreeNext() {
		n.throw(step + 1)
	}
	free = free && !n.judges()
	for _, r := range d.inTurn() {
		key := r.Key
		if n.isTooOld(key.Step) {
			n.forget(r)
			continue
		}
		if r.phase != isOver {
			n.inquire(&r.inquiry, manner{holders: n.holders(key.Trainer), limits: wider, twice: true, engine: free})
			if n.isSilent(&r.inquiry, auditorAsks) {
				r.end(silent, "asked %d times in %v, it opens to nobody", r.poll.asked, n.tasks.Now().Sub(r.poll.first).Round(time.Second))
			}
		}
		if r.phase == isOver {
			n.conclude(r, free)
		}
	}
}

// inTurn returns the reviews in the order in which they get the trainer: first those that may end in an
// accusation, then the newest, for which the trainer has the fewest rounds to take back.
func (d *duties) inTurn() []*review {
	return slices.SortedFunc(maps.Values(d.reviews), func(a, b *review) int {
		switch suspect := a.suspects(); {
		case suspect != b.suspects() && suspect:
			return -1
		case suspect != b.suspects():
			return 1
		}
		return b.Compare(a.Key)
	})
}

// suspects reports whether something was found that is to be looked at once more, or to be accused of.
func (r *review) suspects() bool { return r.failed > 0 || r.phase == isOver }

func wider(p audit.Precision) audit.Limits { return p.Limits().Wider() }

// isFree reports whether the trainer has nothing to do in a round, any more.
func (n duty) isFree(l *ledger) bool {
	switch {
	case l == nil || n.run.state.RunState != coordinator.RoundTrain && n.run.state.RunState != coordinator.RoundWitness:
		return false
	case l.Own(n.run.me) != nil && !l.trained:
		return false
	case n.engine.lag() > 1: // the next round's training begins in this one
		return n.AuditIdle || !n.run.foretell(n.Draws).ok
	}
	return n.AuditIdle || l.Own(n.run.me) == nil
}

// isFreeNext reports whether the trainer will have nothing to do in the next round, as far as that is
// known.
func (n duty) isFreeNext() bool {
	next := n.run.foretell(n.Draws)
	return n.engine.lag() == 1 && next.step == n.run.state.Progress.Step+1 && !next.ok
}

// throw throws the dice, once for a round.
func (n duty) throw(step uint32) {
	d := n.seat.duties
	if d.thrown >= step || !n.makeRoom() {
		return
	}
	d.thrown = step
	rounds, me := d.past.Rounds(audits.DrawnRounds), n.run.myself()
	for key := range d.looked {
		if len(rounds) == 0 || key.Step < rounds[0].Step {
			delete(d.looked, key)
		}
	}
	r, found := d.dice.Throw(step, rounds, func(r *audits.Result) bool {
		return r.Owner != me && r.Read() && !d.looked[audits.Key{Trainer: r.Owner, Step: r.Header.Step}]
	})
	if !found {
		return
	}
	key := audits.Key{Trainer: r.Owner, Step: r.Header.Step}
	d.looked[key] = true
	d.reviews[key] = &review{inquiry: newInquiry(key)}
}

// makeRoom reports whether one more result can be reviewed. Where too many wait for the trainer, the
// oldest of them is given up.
func (n duty) makeRoom() bool {
	d := n.seat.duties
	if len(d.reviews) < maxReviews {
		return true
	}
	for _, r := range slices.Backward(d.inTurn()) {
		if r.phase == waitsForEngine && r.failed == 0 {
			n.forget(r)
			return true
		}
	}
	return false
}

// holders returns who may have the opening of a trainer: itself, and two others, in turns.
func (n duty) holders(trainer coordinator.ClientID, also ...coordinator.ClientID) func() []identity.ID {
	return func() []identity.ID {
		ids := []identity.ID{identity.ID(trainer)}
		for _, id := range also {
			ids = append(ids, identity.ID(id))
		}
		others := n.run.members(n.fetcher.Rotation.Next)
		return append(ids, others[:min(2, len(others))]...)
	}
}

// conclude tells what a review came to, and accuses if it has to.
func (n duty) conclude(r *review, free bool) {
	if !r.told {
		r.told = true
		n.tell(&r.inquiry)
		n.seat.duties.compareData(&r.inquiry)
		switch {
		case r.outcome == silent:
			r.fault = coordinator.FaultSilent
		case r.outcome.guilty():
			r.fault = coordinator.FaultResult
		}
	}
	if r.fault == 0 {
		n.forget(r)
		return
	}
	n.accuseOf(r, free)
}

// forget ends a review.
func (n duty) forget(r *review) {
	d := n.seat.duties
	delete(d.reviews, r.Key)
	if d.trials[r.Key] == nil {
		d.openings.Drop(r.Key)
	}
}

// compareData notes whether a trainer read the same tokens as this client.
func (d *duties) compareData(q *inquiry) {
	if q.outcome == passed || q.differ {
		d.sameData[q.Trainer] = !q.differ
	}
}

// readsRight reports whether as many trainers read the same tokens as this client as read others: it
// may be its own data that is wrong.
func (d *duties) readsRight() bool {
	same, others := 0, 0
	for _, s := range d.sameData {
		if s {
			same++
		} else {
			others++
		}
	}
	return same > 0 && same >= others
}

// accuseOf accuses a trainer, once this client knows that it computes right.
func (n duty) accuseOf(r *review, free bool) {
	d, s := n.seat.duties, n.run.state
	switch {
	case d.trials[r.Key] != nil, d.sound.known && !d.sound.sound, r.differ && !d.readsRight():
		n.forget(r) // it is on trial for that, or it may be this client that is wrong
		return
	case !d.sound.known:
		n.auditItself(free)
		return
	}
	accuse := coordinator.Accuse{Step: r.Step, Client: r.Trainer, Fault: r.fault}
	if s.MayAccuse(n.run.myself(), accuse) != nil {
		return // not now
	}
	n.errands.submit("accuse", r.Key, accuse, func() {
		accused := identity.ID(r.Trainer)
		n.report.log.Warn("accused a trainer", "step", r.Step, "trainer", accused.Short(), "fault", r.fault, "why", r.reason)
		n.report.emit(event.Accused{Step: r.Step, Client: accused.String(), Fault: r.fault.String(), Detail: r.reason})
	})
}

// What is older than both is not looked at any more: others may have forgotten it when they are to
// judge.
const (
	accusableRounds = audits.KeptRounds - 4
	accusableTime   = audits.KeptTime - 20*time.Second
)

func (n duty) isTooOld(step uint32) bool {
	round, kept := n.seat.duties.past.Round(step)
	return !kept || n.run.state.Progress.Step > step+accusableRounds && n.tasks.Now().Sub(round.At) > accusableTime
}

// auditItself finds out whether the own newest result passes: where it does not, something is wrong
// here, and nobody is accused by this process.
func (n duty) auditItself(free bool) {
	d := n.seat.duties
	if d.sound.inquiry == nil {
		key, found := n.ownNewest()
		if !found {
			return
		}
		q := newInquiry(key)
		d.sound.inquiry = &q
	}
	q := d.sound.inquiry
	n.inquire(q, manner{holders: func() []identity.ID { return nil }, limits: audit.Precision.Limits, engine: free})
	switch {
	case q.phase != isOver:
	case q.outcome == passed:
		d.sound = soundness{known: true, sound: true}
	case q.outcome.guilty():
		d.sound = soundness{known: true}
		n.report.log.Error("this client's own result does not pass its own audit: it accuses nobody", "step", q.Step, "why", q.reason)
		n.tell(q)
	default:
		d.sound = soundness{}
	}
}

// ownNewest returns the own newest result that is held and open.
func (n duty) ownNewest() (audits.Key, bool) {
	d := n.seat.duties
	rounds := d.past.Rounds(audits.DrawnRounds)
	for i := range slices.Backward(rounds) {
		key := audits.Key{Trainer: n.run.myself(), Step: rounds[i].Step}
		if _, held := d.past.Find(key.Step, key.Trainer); held && d.openings.Get(key) != nil {
			return key, true
		}
	}
	return audits.Key{}, false
}
