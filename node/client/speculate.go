package client

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/tally"
)

// speculation describes whether this client can speculate on the running round. outcome contains the
// predicted outcome once Whole has returned true.
func (n *Node) speculation(rs *roundState) (s core.Speculation, outcome *tally.Outcome) {
	f, step := n.engine.speculation, rs.Round.Step
	_, able := n.engine.trainer.(env.Speculator)
	outcome = &tally.Outcome{}
	return core.Speculation{
		Begun: f != nil && f.step == step, Done: n.engine.speculated(step),
		Possible: able && rs.Began && !rs.Final && !rs.Round.HasQuorum(),
		Whole: func() (whole bool) {
			*outcome, whole = rs.Predict(n.run.healthy)
			return whole
		},
		Leeway: n.rounds.leeway(step + 1), Judges: n.auditor.Judges(),
	}, outcome
}

// speculate applies the results of the running round to the weights. It does not wait for the witnesses
// and the host to confirm that the results count. Meanwhile the trainer can compute the next round's
// gradient, so that only the transfer of the results separates two trainings. A misprediction is undone.
func (n *Node) speculate(rs *roundState, outcome tally.Outcome) {
	trainer, step := n.engine.trainer.(env.Speculator), rs.Round.Step
	own, votes := rs.isOwn(outcome), tally.VotesOf(outcome.Counted)
	start(&n.engine, core.Speculate{Step: step}, func(ctx context.Context) *speculation {
		begun := n.engine.tasks.Now()
		f := &speculation{step: step, outcome: outcome}
		if f.payloads, f.unread, f.err = fetch.Read(ctx, n.Network, outcome.Sources); f.err == nil {
			f.ready, f.err = trainer.Speculate(ctx, step, f.payloads, votes, own)
		}
		f.seconds = n.engine.tasks.Now().Sub(begun).Seconds()
		return f
	}, func(f *speculation) {
		if n.engine.speculation = nil; f.ready {
			n.engine.speculation = f
			n.engine.outlook.Took = time.Duration(f.seconds * float64(time.Second))
			return
		}
		n.engine.outlook.Failed(step)
		if len(f.unread) > 0 {
			n.fetcher.Unread(rs.Tally, f.unread, f.err)
		} else if f.err != nil {
			n.report.log.Debug("speculation failed", "step", step, "err", f.err)
		}
	}, nil)
	n.engine.speculation = &speculation{step: step} // not ready
}

// isOwn reports whether this client's result is among the counted ones.
func (rs *roundState) isOwn(o tally.Outcome) bool {
	return rs.commitment != (tally.Commitment{}) && slices.ContainsFunc(o.Counted, func(c tally.Counted) bool { return c.Commitment == rs.commitment })
}

// isOwnKept reports whether witnesses hold this client's result, but it does not count yet.
func (rs *roundState) isOwnKept(o tally.Outcome) bool {
	return rs.commitment != (tally.Commitment{}) && slices.ContainsFunc(o.Kept, func(k tally.Kept) bool { return k.Candidate.Commitment == rs.commitment })
}

// confirm confirms the speculation about a round that ended as predicted, and returns it once it is
// part of the model. Until then, later is true, and the caller must call again. If the round ended
// differently, confirm cancels work based on the speculation, and the trainer undoes it.
func (n *Node) confirm(rs *roundState, o tally.Outcome) (confirmed *speculation, later bool) {
	step := rs.Round.Step
	f := n.engine.speculation
	if f == nil || f.step != step || !f.ready {
		return nil, false
	}
	trainer, able := n.engine.trainer.(env.Speculator)
	predicted := able && slices.Equal(f.outcome.Counted, o.Counted)
	if predicted && f.record == nil {
		if f.record = n.auditor.Record(rs.Tally, o, n.rounds.replica.ColdSteps); f.record != nil {
			f.reading = true
			n.engine.tasks.Spawn(func(ctx context.Context) func() {
				f.record.Read(ctx, n.Network, f.payloads)
				return func() { f.reading = false }
			})
		}
	}
	if predicted && f.reading {
		return nil, true
	}
	n.engine.speculation = nil
	if !predicted || !trainer.Confirm(step) {
		n.report.log.Debug("a round ended with a different outcome than expected", "step", step)
		n.step(core.Mispredicted{Step: step})
		return nil, false
	}
	return f, false
}
