package client

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/tally"
)

// speculation contains results that were applied to the trainer's weights before it was decided
// that they count.
type speculation struct {
	step     uint32
	outcome  tally.Outcome
	payloads [][]byte
	seconds  float64            // time to apply the results
	ready    bool               // the results have been applied
	unread   []*tally.Candidate // results that could not be read
	err      error

	record  *auditor.Record // set once the outcome is known, if results are audited
	reading bool            // the record is being read
}

// outlook decides whether speculation is worthwhile.
type outlook struct {
	wait     time.Duration // newest time from a round's last result to the end of the round
	took     time.Duration // newest time to apply the results of a round
	trains   time.Duration // duration of the newest training, without waiting
	mistakes int           // mispredicted outcomes in this epoch
	from     uint32        // first step of the next attempt
}

// After a misprediction, a member waits firstPause rounds before it speculates again. Each further
// misprediction doubles this pause, at most maxDoublings times. An attacker that causes
// mispredictions therefore wastes little of the member's time.
const (
	firstPause   = 16 // rounds
	maxDoublings = 6
)

// erred records a mispredicted outcome.
func (o *outlook) erred(step uint32) {
	o.from = step + firstPause<<min(o.mistakes, maxDoublings)
	o.mistakes++
}

// pays reports whether speculation is worthwhile. It saves the wait for the decision about a round.
// It costs a copy of the weights, which takes a small part of the time to apply results. In
// addition, the trainer may have to finish a training that used a misprediction before it starts
// the right one. That must not take longer than witnesses wait for late members, or an attacker
// that causes a misprediction could have this client dropped.
func (o *outlook) pays(step uint32, leeway time.Duration) bool {
	return step >= o.from && o.wait > o.took/4 && o.took+o.trains <= leeway
}

// speculate applies the results of the running round to the weights when the results of all members
// have arrived, and reports whether that is done. It does not wait for the witnesses and the host
// to confirm that the results count. Meanwhile the trainer can compute the next round's gradient,
// so that only the transfer of the results separates two trainings. A misprediction is undone.
func (n *Node) speculate(rs *roundState) bool {
	f, step := n.engine.speculation, rs.Round.Step
	if f != nil && f.step == step {
		return f.ready
	}
	trainer, able := n.engine.trainer.(env.Speculator)
	if !able || !rs.Began || rs.Final || n.rounds.replica.step != step-1 || rs.Round.HasQuorum() {
		return false
	}
	outcome, ok := rs.Predict(n.run.healthy)
	if !ok {
		return false
	}
	if rs.whole.IsZero() {
		rs.whole = n.engine.tasks.Now()
	}
	if !n.engine.Idle() || !n.engine.outlook.pays(step, n.rounds.leeway(step+1)) || n.auditor.Judges() || n.models.copies.Owed() == step-1 {
		return false
	}
	own := rs.isOwn(outcome)
	start(&n.engine, core.Speculate{Step: step}, func(ctx context.Context) *speculation {
		begun := n.engine.tasks.Now()
		f := &speculation{step: step, outcome: outcome}
		if f.payloads, f.unread, f.err = fetch.Read(ctx, n.Network, outcome.Sources); f.err == nil {
			f.ready, f.err = trainer.Speculate(ctx, step, f.payloads, own)
		}
		f.seconds = n.engine.tasks.Now().Sub(begun).Seconds()
		return f
	}, func(f *speculation) {
		if n.engine.speculation = nil; f.ready {
			n.engine.speculation = f
			n.engine.outlook.took = time.Duration(f.seconds * float64(time.Second))
			return
		}
		n.engine.outlook.from = step + firstPause
		if len(f.unread) > 0 {
			n.fetcher.Unread(rs.Tally, f.unread, f.err)
		} else if f.err != nil {
			n.report.log.Debug("speculation failed", "step", step, "err", f.err)
		}
	}, nil)
	n.engine.speculation = &speculation{step: step} // not ready
	return false
}

// isOwn reports whether this client's result is among the counted ones.
func (rs *roundState) isOwn(o tally.Outcome) bool {
	return rs.commitment != (tally.Commitment{}) && slices.ContainsFunc(o.Counted, func(c tally.Counted) bool { return c.Commitment == rs.commitment })
}

// confirm confirms the speculation about a round that ended as predicted, and returns it once it is
// part of the model. Until then, later is true, and the caller must call again. If the round ended
// differently, confirm cancels work based on the speculation, and the trainer undoes it.
func (n *Node) confirm(rs *roundState, o tally.Outcome) (confirmed *speculation, later bool) {
	step, replica := rs.Round.Step, n.rounds.replica
	f := n.engine.speculation
	if f == nil || f.step != step || !f.ready {
		return nil, false
	}
	trainer, able := n.engine.trainer.(env.Speculator)
	if !able || !slices.Equal(f.outcome.Counted, o.Counted) {
		n.engine.mispredicted(f, n.report.log)
		return nil, false
	}
	if f.record == nil {
		if f.record = n.auditor.Record(rs.Tally, o, replica.coldSteps); f.record != nil {
			f.reading = true
			n.engine.tasks.Spawn(func(ctx context.Context) func() {
				f.record.Read(ctx, n.Network, f.payloads)
				return func() { f.reading = false }
			})
		}
	}
	if f.reading {
		return nil, true
	}
	if !trainer.Confirm(step) {
		n.engine.mispredicted(f, n.report.log)
		return nil, false
	}
	n.engine.speculation = nil
	if !replica.closing && n.run.isMember() && n.models.copies.Due(n.run.state, step) {
		n.models.copies.Owe(step)
	}
	return f, false
}

// mispredicted drops a mispredicted speculation.
func (e *engine) mispredicted(f *speculation, log *slog.Logger) {
	log.Debug("a round ended with a different outcome than expected", "step", f.step)
	e.speculation = nil
	e.outlook.erred(f.step)
	e.CancelTraining(func(of uint32) bool { return of != f.step+1 })
}

// waited records how long it took from having all results of a round to its end.
func (o *outlook) waited(before *roundState, now time.Time) {
	if before != nil && !before.whole.IsZero() {
		o.wait = now.Sub(before.whole)
	}
}
