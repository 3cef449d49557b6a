package client

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/handover"
	"github.com/psyche-go/psyche/node/tally"
)

// foresight are the results that moved the trainer's weights before it was decided that they count.
type foresight struct {
	step     uint32
	replica  *replica // that they were foreseen for
	outcome  tally.Outcome
	payloads [][]byte
	seconds  float64 // that moving the weights took
	ready    bool    // the weights are moved

	record  *auditor.Record // once the outcome is known, where results are audited
	reading bool            // the record is being read
}

// outlook says whether it pays to foresee.
type outlook struct {
	wait     time.Duration // from a round's last result until the round was over, in the newest
	took     time.Duration // to move the weights, newest
	trains   time.Duration // the newest training, without what it waited for
	mistakes int           // outcomes that were others than foreseen, in this epoch
	from     uint32        // step from which on it is tried again
}

// A member that foresaw a wrong outcome waits firstPause rounds before it tries again, and twice as long each time,
// until maxDoublings: who can make it err wastes little of its time.
const (
	firstPause   = 16 // rounds
	maxDoublings = 6
)

// erred notes that a round's outcome was not the one foreseen.
func (o *outlook) erred(step uint32) {
	o.from = step + firstPause<<min(o.mistakes, maxDoublings)
	o.mistakes++
}

// pays reports whether what is gained, the wait, is much against what it costs: a copy of the weights, which takes a
// small part of the time of moving them. If it turns out to be wrong, the training that began from it may have to come
// to its end before the right one begins: that must not take longer than witnesses wait for who is late, or whoever
// can make this client err can have it dropped.
func (o *outlook) pays(step uint32, leeway time.Duration) bool {
	return step >= o.from && o.wait > o.took/4 && o.took+o.trains <= leeway
}

// applier makes results part of the model: those that count, or, before that is decided, those that most likely will.
type applier struct {
	run     *view
	engine  *engine
	rounds  *roundStates
	auditor *auditor.Auditor
	fetcher *fetch.Fetcher
	models  *handover.Models
	store   *exchange.Store
	blobs   env.Blobs
	report  *reporter
}

// foresee moves the weights by the results of the running round as soon as those of all members are here, before
// witnesses, host and network have made sure that they count, and reports whether that is done. The next
// round's gradient is then computed meanwhile, so that between two trainings there is only the way of the results.
// What does not come true is taken back.
func (a *applier) foresee(l *roundState) bool {
	f, step := a.engine.foresight, l.Round.Step
	if f != nil && f.step == step && f.replica == a.rounds.replica {
		return f.ready
	}
	trainer, able := a.engine.trainer.(env.Foreseer)
	if !able || !l.Began || l.Final || a.rounds.replica.step != step-1 || l.Round.HasQuorum() {
		return false
	}
	outcome, ok := l.Foretell(a.run.healthy)
	if !ok {
		return false
	}
	if l.whole.IsZero() {
		l.whole = a.engine.tasks.Now()
	}
	if !a.engine.Idle() || !a.engine.outlook.pays(step, a.rounds.leeway(step+1)) || a.auditor.Judges() || a.rounds.points.owed == step-1 {
		return false
	}
	f = &foresight{step: step, replica: a.rounds.replica, outcome: outcome}
	own := l.isOwn(outcome)
	a.engine.start(opForesee, step, func(ctx context.Context) func() {
		begun := a.engine.tasks.Now()
		var done bool
		var unread []*tally.Candidate
		var err error
		if f.payloads, unread, err = fetch.Read(ctx, a.blobs, outcome.Sources); err == nil {
			done, err = trainer.Foresee(ctx, step, f.payloads, own)
		}
		f.seconds = a.engine.tasks.Now().Sub(begun).Seconds()
		return func() {
			switch {
			case a.engine.foresight != f:
			case done:
				f.ready = true
				a.engine.outlook.took = time.Duration(f.seconds * float64(time.Second))
			default:
				a.engine.foresight = nil
				a.engine.outlook.from = step + firstPause
				if len(unread) > 0 && a.rounds.replica == f.replica {
					a.fetcher.Unread(l.Tally, unread, err)
				} else if err != nil {
					a.report.log.Debug("speculation failed", "step", step, "err", err)
				}
			}
		}
	})
	a.engine.foresight = f
	return false
}

// isOwn reports whether the own result is among those that count.
func (l *roundState) isOwn(o tally.Outcome) bool {
	return l.commitment != (tally.Commitment{}) && slices.ContainsFunc(o.Counted, func(c tally.Counted) bool { return c.Commitment == l.commitment })
}

// comesTrue confirms what was foreseen of a round that ended so, and returns it once it is part of the model; later says
// that it will be. If the round ended otherwise, what was begun from it ends, and the trainer takes it back.
func (a *applier) comesTrue(l *roundState, o tally.Outcome) (came *foresight, later bool) {
	step, replica := l.Round.Step, a.rounds.replica
	f := a.engine.foresight
	if f == nil || f.step != step || f.replica != replica || !f.ready {
		return nil, false
	}
	trainer, able := a.engine.trainer.(env.Foreseer)
	if !able || !slices.Equal(f.outcome.Counted, o.Counted) {
		a.mistaken(f)
		return nil, false
	}
	if f.record == nil {
		if f.record = a.auditor.Record(l.Tally, o, replica.coldSteps); f.record != nil {
			f.reading = true
			a.engine.tasks.Spawn(func(ctx context.Context) func() {
				f.record.Read(ctx, a.blobs, f.payloads)
				return func() { f.reading = false }
			})
		}
	}
	if f.reading {
		return nil, true
	}
	if !trainer.Confirm(step) {
		a.mistaken(f)
		return nil, false
	}
	a.engine.foresight = nil
	if !replica.closing && a.run.isMember() && a.rounds.points.isDue(a.run.state, step) {
		a.rounds.points.owed = step
	}
	return f, false
}

// mistaken gives up what was foreseen.
func (a *applier) mistaken(f *foresight) {
	a.report.log.Debug("a round ended with another outcome than expected", "step", f.step)
	a.engine.foresight = nil
	a.engine.outlook.erred(f.step)
	a.engine.cancelTraining(func(of uint32) bool { return of != f.step+1 })
}

// waited notes how long it took until a round was over whose results were all here.
func (o *outlook) waited(before *roundState, now time.Time) {
	if before != nil && !before.whole.IsZero() {
		o.wait = now.Sub(before.whole)
	}
}
