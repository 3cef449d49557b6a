package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/client/fetch"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/distro/codec"
	"github.com/psyche-go/psyche/identity"
)

// maxInquiryTries is how often what an inquiry needs is tried to be had.
const maxInquiryTries = 4

// errNoResult says that there is no result to audit in a round of which everything that counted is known.
var errNoResult = errors.New("it has no result in that round")

// inquiry is the way to what a trainer's gradient should have been, in each type that this client
// computes in, one after the other: a second one only when the first says that it was not.
type inquiry struct {
	step    uint32 // of the result
	trainer coordinator.ClientID
	seed    uint64 // of the round after

	found   *audits.Case // nil: not looked for yet
	tokens  data.Batch
	header  codec.Header
	result  []codec.TensorResult
	read    bool // tokens and result are here
	reading bool
	tries   int
	again   time.Time // not before

	types []audit.Precision // to compute in, in that order
	exams []*audit.Exam     // in these types
	err   error             // why it cannot be found out
}

// ready reports whether so many exams are there, and does what is missing, unless that failed.
// Nothing here waits: an examination uses the trainer when nobody else does.
func (n duty) ready(q *inquiry, exams int, urgent bool) bool {
	switch {
	case len(q.exams) >= exams:
		return true
	case q.err != nil || q.reading || n.tasks.Now().Before(q.again):
		return false
	case n.replica.step < q.step:
		if n.engine.idle() {
			n.settleEarly(q.step)
		}
		return false
	}
	if q.found == nil {
		c, err := n.seat.duties.past.Case(q.step, q.trainer, n.run.sinceOf(q.trainer), n.engine.lag())
		if err != nil {
			if _, known := n.seat.duties.past.Round(q.step); known {
				err = errNoResult
			}
			q.err = err
			return false
		}
		q.found, q.types = &c, n.seat.duties.typesFor(q.trainer, n.opensTo().trainer.Precisions())
	}
	if !q.read {
		n.readInquiry(q)
		return false
	}
	if n.engine.idle() && !n.replica.closing {
		n.examine(q, urgent)
	}
	return false
}

// readInquiry gets the result and the tokens of its batch.
func (n duty) readInquiry(q *inquiry) {
	q.reading = true
	r, auditor, limit := q.found.Result, n.opensTo().trainer, n.run.settleTime(n.SettleTimeout)
	n.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := n.tasks.WithTimeout(ctx, limit)
		defer cancel()
		var header codec.Header
		var result []codec.TensorResult
		payload, err := n.Network.Fetch(ctx, r.Commitment, uint64(r.Size), nil)
		if err == nil {
			header, result, err = auditor.Decode(payload)
		}
		var tokens data.Batch
		if err == nil {
			tokens, err = n.Data.Batch(ctx, r.Batch)
		}
		return func() {
			q.reading = false
			q.header, q.result, q.tokens, q.read = header, result, tokens, err == nil
			n.retry(q, err)
		}
	})
}

// typesFor returns the types that a gradient can be computed in, first the one that a trainer's was
// found to be computed in before, else the own one.
func (d *duties) typesFor(trainer coordinator.ClientID, types []audit.Precision) []audit.Precision {
	types = slices.Clone(types)
	if last, known := d.types[trainer]; known {
		if i := slices.Index(types, last); i > 0 {
			types = slices.Insert(slices.Delete(types, i, i+1), 0, last)
		}
	}
	return types
}

// retry notes that something failed, and when it is tried again.
func (n duty) retry(q *inquiry, err error) {
	if err == nil {
		return
	}
	q.tries++
	q.again = n.tasks.Now().Add(fetch.Backoff(q.tries))
	n.report.log.Warn("audit", "step", q.step, "trainer", identity.ID(q.trainer).Short(), "attempt", q.tries, "err", err)
	if q.tries >= maxInquiryTries {
		q.err = err
	}
}

// examine computes the gradient in the next type.
func (n duty) examine(q *inquiry, urgent bool) {
	auditor := n.opensTo().trainer
	if len(q.exams) >= len(q.types) {
		q.err = fmt.Errorf("there is no other type to compute in than %v", q.types)
		return
	}
	rounds, kept := n.seat.duties.past.Since(q.found.Weights, n.replica.step)
	if !kept {
		q.err = fmt.Errorf("results since step %d: %w", q.found.Weights, audits.ErrNotKept)
		return
	}
	x := env.Examination{
		Step: q.step, Trainer: q.trainer, Batch: q.tokens, Weights: q.found.Weights, Precision: q.types[len(q.exams)],
		Chunks: audit.Chunks(q.seed, q.step, q.trainer, auditor.Shapes(), audit.DefaultChunks),
	}
	n.engine.start(opExamine, q.step, func(ctx context.Context) func() {
		begun := n.tasks.Now()
		var exam *audit.Exam
		applied, err := readApplied(ctx, n.Network, rounds)
		if err == nil {
			x.Applied = applied
			exam, err = auditor.Examine(ctx, x)
		}
		cancelled, took := ctx.Err() != nil, n.tasks.Now().Sub(begun)
		return func() {
			switch {
			case err == nil:
				q.exams = append(q.exams, exam)
				n.report.log.Debug("examined", "step", q.step, "trainer", identity.ID(q.trainer).Short(), "type", x.Precision.String(), "seconds", took.Seconds())
			case cancelled: // something else needed the trainer
				q.again = n.tasks.Now().Add(heartbeat)
			default:
				n.retry(q, err)
			}
		}
	})
	n.engine.op.urgent = urgent
}

// readApplied reads what was applied in rounds, newest first.
func readApplied(ctx context.Context, blobs env.Blobs, rounds []audits.Round) ([]env.Applied, error) {
	applied := make([]env.Applied, len(rounds))
	for i, round := range rounds {
		applied[i].Step = round.Step
		for _, r := range round.Results {
			if !r.Head.Counted {
				continue
			}
			payload, err := blobs.Fetch(ctx, r.Commitment, uint64(r.Size), nil)
			if err != nil {
				return nil, fmt.Errorf("read a result of step %d: %w", round.Step, err)
			}
			applied[i].Payloads = append(applied[i].Payloads, payload)
		}
	}
	return applied, nil
}

// finding is what comes of evidence.
type finding struct {
	outcome audit.Outcome
	report  audit.Report
	// Loose evidence does not bind the trainer: it could show something else to others.
	loose bool
	// Unclear is what may be right in a type that nothing was computed in, or would have been shown to
	// who asks again.
	unclear bool
	reason  string
}

// look judges evidence by an exam in a type and by limits for it. It takes some milliseconds.
func (q *inquiry) look(evidence []byte, exam *audit.Exam, in audit.Precision, limits audit.Limits) finding {
	e, err := audits.DecodeEvidence(evidence, exam.Shapes)
	if err != nil {
		return finding{outcome: audit.Unopened, loose: true, reason: err.Error()}
	}
	claims, err := q.found.Claims(q.header, q.result, e)
	if err != nil {
		previous := q.header.Previous
		loose := !q.found.Bound() || previous != 0 && len(q.found.Heads) > 0 && previous >= q.found.Heads[0].Step
		return finding{outcome: audit.Faulty, report: audit.Report{Fault: audit.FaultHistory}, loose: loose, reason: err.Error()}
	}
	var f finding
	for _, claim := range claims {
		report := exam.Check(claim)
		f = finding{outcome: report.Judge(limits), report: report, loose: !q.found.Bound()}
		if f.outcome == audit.Passed {
			break
		}
	}
	if f.report.Fault == audit.FaultChallenge || f.report.Fault == audit.FaultPath {
		f.loose = true
	}
	if f.outcome != audit.Passed {
		f.reason = fmt.Sprintf("%v: fault %v, error %.3g in %v", f.outcome, f.report.Fault, f.report.Error, in)
	}
	return f
}
