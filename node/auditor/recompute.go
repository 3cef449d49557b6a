package auditor

import (
	"context"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/node/env"
)

// recompute recomputes the gradient of a result, or the rest of it if that was interrupted before, and compares it
// with the opening.
func (a *Auditor) recompute(q *auditCase, m manner) {
	auditor, lag := a.Engine.Auditor(), a.Engine.Lag()
	newest, ok := a.weights()
	from := max(q.Step-min(lag, q.Step), q.epochStart-1)
	rounds, kept := a.past.Since(from, newest)
	in, computes := precisionOf(auditor, q.result.Header)
	switch {
	case !ok:
		return
	case !kept:
		q.end(unclear, "this client has not kept all results since step %d", from)
		return
	case !computes:
		q.end(unclear, "the trainer computes in a type that this client does not support")
		return
	case a.rateIsOver(q):
		return
	}
	x := audit.Recomputation{Step: q.Step, Trainer: q.Trainer, Weights: from, Precision: in, Chunks: q.chunks, Shaken: q.failed > 0}
	payloads, tokens, claim := a.payloads, q.tokens, q.claim
	a.inherit(q)
	a.Engine.Recompute(q.Step, m.within > 0, func(ctx context.Context) func() {
		if m.within > 0 {
			limited, cancel := a.Tasks.WithTimeout(ctx, m.within)
			defer cancel()
			ctx = limited
		}
		begun := a.Tasks.Now()
		var reference *audit.Reference
		var err error
		if x.Applied, err = readApplied(payloads, rounds); err == nil {
			reference, err = auditor.Recompute(ctx, x, tokens)
		}
		var report audit.Report
		if err == nil {
			if m.accuses {
				reference = reference.Wider()
			}
			report = reference.Check(claim)
		}
		cancelled, took := ctx.Err() != nil, a.Tasks.Now().Sub(begun)
		return func() {
			q.spent += took
			if a.unfinished == q && (err == nil || !cancelled) {
				a.unfinished = nil
			}
			switch {
			case q.isOver():
			case err == nil:
				took, q.spent = q.spent, 0
				a.Log.Debug("recomputed", "step", q.Step, "trainer", identity.ID(q.Trainer).Short(), "type", in, "error", report.Error, "seconds", took.Seconds())
				q.took, a.took = took, took
				a.recomputed(q, m, reference, report, in)
			case cancelled: // other work needed the trainer, or it took too long
				a.unfinished = q
				if m.within > 0 {
					a.took = max(a.took, q.spent)
					q.poll.again = a.Tasks.Now().Add(busyPause)
				}
			default:
				q.spent = 0
				q.poll.again = a.Tasks.Now().Add(longestPause)
				a.Log.Warn("cannot compute a gradient for an audit", "step", q.Step, "err", err)
			}
		}
	})
}

// recomputed judges the result of a recomputation.
func (a *Auditor) recomputed(q *auditCase, m manner, reference *audit.Reference, report audit.Report, in audit.Precision) {
	limits := reference.Limits
	if len(q.chunks) < len(q.drawn) {
		limits.Error = limits.Worst // the other limit applies only to all chunks together
	}
	switch came := report.Judge(limits); {
	case came == audit.Passed && q.early: // the other parts may still arrive
		q.early, q.judgedEarly, q.chunks, q.opening, q.failed = false, true, q.drawn, nil, 0
		q.claim.Opening = audit.Opening{}
		q.next(waitsForOpening)
	case came == audit.Passed:
		q.end(passed, "error %.3g in %v", report.Error, in)
	case came == audit.Faulty:
		q.end(faulty, "%s", report.Fault.Meaning())
	case (m.accuses || reference.Shaky) && q.failed == 0:
		q.failed++
	default:
		q.blame(report)
		q.end(faulty, "the gradient does not match the batch: error %.3g in %v", report.Error, in)
	}
}

// blame sets the culprit to the position of the chunk with the largest error.
func (q *auditCase) blame(report audit.Report) {
	worst := -1.0
	for _, c := range report.Chunks {
		if i := slices.Index(q.drawn, c.Chunk); i >= 0 && c.Error > worst {
			worst, q.culprit = c.Error, i
		}
	}
}

// rateIsOver ends a case from a finished epoch with a cold start, because the learning rates in that
// epoch, and thus its models, can no longer be computed.
func (a *Auditor) rateIsOver(q *auditCase) bool {
	over := q.coldSteps > 0 && q.epochStart != a.Client.State().Epoch.StartStep
	if over {
		q.end(unclear, "the round's epoch had a cold start and is over, so its learning rates are no longer known")
	}
	return over
}

// precisionOf returns the number type in a result's header, and whether this client can compute
// gradients in that type.
func precisionOf(auditor env.Auditor, h codec.Header) (audit.Precision, bool) {
	for _, own := range auditor.Precisions() {
		if own.Code() == h.Precision {
			return own, true
		}
	}
	return 0, false
}

// readApplied reads the applied results of rounds, newest first.
func readApplied(payloads *payloadStore, rounds []appliedRound) ([]audit.Applied, error) {
	applied := make([]audit.Applied, len(rounds))
	for i, round := range rounds {
		applied[i].Step = round.Step
		for _, r := range round.counted() {
			payload, err := payloads.Get(r.Commitment)
			if err != nil {
				return nil, fmt.Errorf("a result of step %d: %w", round.Step, err)
			}
			applied[i].Payloads, applied[i].Votes = append(applied[i].Payloads, payload), append(applied[i].Votes, r.Vote)
		}
	}
	return applied, nil
}
