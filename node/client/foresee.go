package client

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/fetch"
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
// small part of the time of moving them.
func (o *outlook) pays(step uint32) bool { return step >= o.from && o.wait > o.took/4 }

// foresee moves the weights by the results of the running round as soon as those of all members are here, before
// witnesses, host and network have made sure that they count, and reports whether that is done. The next
// round's gradient is then computed meanwhile, so that between two trainings there is only the way of the results.
// What does not come true is taken back.
func (n *Node) foresee(l *roundState) bool {
	f, step := n.engine.foresight, l.Round.Step
	if f != nil && f.step == step && f.replica == n.rounds.replica {
		return f.ready
	}
	trainer, able := n.engine.trainer.(env.Foreseer)
	if !able || !l.Began || l.Final || n.rounds.replica.step != step-1 || l.Round.HasQuorum() {
		return false
	}
	outcome, ok := l.Foretell(n.run.healthy)
	if !ok {
		return false
	}
	if l.whole.IsZero() {
		l.whole = n.tasks.Now()
	}
	if !n.engine.Idle() || !n.engine.outlook.pays(step) || n.auditor.Judges() || n.rounds.points.owed == step-1 {
		return false
	}
	f = &foresight{step: step, replica: n.rounds.replica, outcome: outcome}
	own := l.isOwn(outcome)
	n.engine.start(opForesee, step, func(ctx context.Context) func() {
		begun := n.tasks.Now()
		var done bool
		var unread []*tally.Candidate
		var err error
		if f.payloads, unread, err = fetch.Read(ctx, n.Network, outcome.Sources); err == nil {
			done, err = trainer.Foresee(ctx, step, f.payloads, own)
		}
		f.seconds = n.tasks.Now().Sub(begun).Seconds()
		return func() {
			switch {
			case n.engine.foresight != f:
			case done:
				f.ready = true
				n.engine.outlook.took = time.Duration(f.seconds * float64(time.Second))
			default:
				n.engine.foresight = nil
				n.engine.outlook.from = step + firstPause
				if len(unread) > 0 && n.rounds.replica == f.replica {
					n.fetcher.Unread(l.Tally, unread, err)
				} else if err != nil {
					n.report.log.Debug("foresee", "step", step, "err", err)
				}
			}
		}
	})
	n.engine.foresight = f
	return false
}

// isOwn reports whether the own result is among those that count.
func (l *roundState) isOwn(o tally.Outcome) bool {
	return l.commitment != (tally.Commitment{}) && slices.ContainsFunc(o.Counted, func(c tally.Counted) bool { return c.Commitment == l.commitment })
}

// cameTrue takes over what was foreseen if the round ended so, and reports whether that is done or goes on. Else what
// was begun from it ends, and the trainer takes it back.
func (n *Node) cameTrue(l *roundState, o tally.Outcome) bool {
	f, step := n.engine.foresight, l.Round.Step
	if f == nil || f.step != step || f.replica != n.rounds.replica || !f.ready {
		return false
	}
	trainer, able := n.engine.trainer.(env.Foreseer)
	if !able || !slices.Equal(f.outcome.Counted, o.Counted) {
		n.mistaken(f)
		return false
	}
	if f.record == nil {
		f.record = n.auditor.Record(l.Tally, o, n.rounds.replica.coldSteps)
		f.reading = f.record != nil
		if f.reading {
			n.tasks.Spawn(func(ctx context.Context) func() {
				f.record.Read(ctx, n.Network, f.payloads)
				return func() { f.reading = false }
			})
		}
	}
	if f.reading {
		return true
	}
	if !trainer.Confirm(step) {
		n.mistaken(f)
		return false
	}
	n.engine.foresight = nil
	n.models.Held = nil
	if !n.rounds.replica.closing && n.run.isMember() && n.rounds.points.isDue(n.run.state, step) {
		n.rounds.points.owed = step
	}
	n.applied(l, o, f.payloads, f.record, f.seconds)
	return true
}

// mistaken gives up what was foreseen.
func (n *Node) mistaken(f *foresight) {
	n.report.log.Debug("a round ended otherwise than foreseen", "step", f.step)
	n.engine.foresight = nil
	n.engine.outlook.erred(f.step)
	n.engine.cancelTraining(func(of uint32) bool { return of != f.step+1 })
}

// waited notes how long it took until a round was over whose results were all here.
func (o *outlook) waited(before *roundState, now time.Time) {
	if before != nil && !before.whole.IsZero() {
		o.wait = now.Sub(before.whole)
	}
}
