package auditor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/record/event"
)

// auditCase is the examination of a trainer's result, for an auditor or a juror. It requests
// missing data repeatedly, until the round is no longer kept.
type auditCase struct {
	resultID
	phase phase
	poll  poll // requests of the current phase

	asked coordinator.Progress // progress of the run when the trainer was first asked for its opening

	epochStart, coldSteps uint32
	sequences             []assign.BatchID // of the result's batch
	result                attestedResult
	claim                 audit.Claim // the trainer's claim, with its opening once that has arrived
	drawn                 []uint32    // chunks that the trainer must open
	chunks                []uint32    // subset of drawn that this case needs
	gathered              gathering
	early                 bool // the case is judged by the chunks that have arrived
	judgedEarly           bool // it was judged early, and passed
	culprit               int  // position of a faulty chunk among the drawn chunks
	opening               []byte
	tokens                data.Batch
	differ                bool          // this client's tokens differ from the tokens that the trainer claims to have received
	spent                 time.Duration // on an unfinished recomputation
	took                  time.Duration // of the newest finished recomputation
	failed                int           // number of recomputed gradients that did not match

	outcome outcome
	reason  string
}

// phase is the current phase of a case.
type phase uint8

const (
	waitsForRound phase = iota // until it is applied, and the seed that draws the chunks is known
	waitsForTokens
	waitsForOpening // requested from the trainer and from other members
	waitsForEngine  // until the trainer can compute the gradient
	isFound
	isTold // reported to users
)

// outcome is the outcome of a case.
type outcome string

const (
	unclear     outcome = "unclear" // this client lacks data to judge the result
	wrongData   outcome = "other data"
	notAttested outcome = "not held" // the trainer has no attested result in the round
	passed      outcome = "passed"
	faulty      outcome = "faulty"
	silent      outcome = "silent"
)

func (o outcome) guilty() bool { return o == faulty || o == silent }

// isOver reports whether the outcome of a case is known.
func (q *auditCase) isOver() bool { return q.phase >= isFound }

// end ends a case.
func (q *auditCase) end(o outcome, format string, values ...any) {
	q.phase, q.outcome, q.reason = isFound, o, fmt.Sprintf(format, values...)
	q.tokens, q.claim = data.Batch{}, audit.Claim{}
}

// next starts the next phase.
func (q *auditCase) next(p phase) { q.phase, q.poll = p, poll{} }

// manner contains the settings that differ between an audit and a trial.
type manner struct {
	others    func() []identity.ID    // members other than the trainer that may have parts of the opening
	challenge func([]uint32) []uint32 // selects the chunks that the case needs; nil: all drawn chunks
	accuses   bool                    // uses wider limits, and confirms errors by a second computation
	engine    bool                    // the trainer may be used now
	within    time.Duration           // time limit of a recomputation that other work cannot cancel; 0: other work can
}

// pursue continues a case. It never blocks.
func (a *Auditor) pursue(q *auditCase, m manner) {
	switch q.phase {
	case waitsForRound:
		a.findResult(q, m)
	case waitsForOpening:
		a.getOpening(q, m)
	case waitsForTokens:
		a.getTokens(q)
	case waitsForEngine:
		if m.engine && a.hasTurn(q) && a.Engine.Idle() && q.poll.due(a.Tasks.Now()) {
			a.recompute(q, m)
		}
	}
}

// findResult finds the result, and checks what it claims to continue from.
func (a *Auditor) findResult(q *auditCase, m manner) {
	newest := a.Client.State().Progress.Step
	round, kept := a.past.round(q.Step)
	seed, drawn := a.seeds[q.Step]
	switch {
	case !kept && a.hasApplied(q.Step), !drawn && q.Step+coordinator.StoredRounds < newest:
		q.end(unclear, "this client does not know the round")
		return
	case !kept || !drawn:
		return // the round is not applied yet, or the seed is not known yet
	}
	r, found := a.past.find(q.Step, q.Trainer)
	switch {
	case !found && slices.Contains(round.Unknown, q.Trainer):
		q.end(unclear, "witnesses hold a result of the trainer that this client has not received")
		return
	case !found:
		q.end(notAttested, "the trainer has no attested result in the round")
		return
	case !r.read():
		q.end(unclear, "this client could not get the trainer's result")
		return
	}
	root, history := a.past.previous(&r)
	switch history {
	case lineageUnknown:
		q.end(unclear, "this client does not know the earlier result that the result continues from")
		return
	case lineageBroken:
		q.end(faulty, "the result continues from the momentum after step %d, which is not the step of the trainer's newest attested result", r.Header.Previous)
		return
	}
	var senders *senderCounts
	if q.Step > round.EpochStart {
		before, known := a.past.round(q.Step - 1)
		if !known {
			q.end(unclear, "this client does not know the previous round")
			return
		}
		senders = before.Senders
	}
	q.result, q.epochStart, q.coldSteps = r, round.EpochStart, round.ColdSteps
	q.sequences = round.Data.Sequences(r.Batch)
	a.readResult(q, m, root, seed, senders)
}

// readResult reads the result, and determines the chunks to open.
func (a *Auditor) readResult(q *auditCase, m manner, root, seed [32]byte, senders *senderCounts) {
	auditor, payloads, r, key := a.Engine.Auditor(), a.payloads, q.result, q.resultID
	q.poll.ask(a.Tasks, requestTimeout, func(context.Context) func() {
		payload, err := payloads.Get(r.Commitment)
		var sent []codec.TensorResult
		if err == nil {
			_, sent, err = auditor.Decode(payload)
		}
		var chunks []uint32
		if err == nil {
			chunks, err = senders.drawn(seed, key, auditor.Shapes(), sent)
		}
		return func() {
			if err != nil {
				q.end(unclear, "%v", err)
				return
			}
			if a.rateIsOver(q) {
				return
			}
			q.drawn, q.chunks = chunks, chunks
			if m.challenge != nil {
				q.chunks = m.challenge(chunks)
			}
			q.claim = audit.Claim{Result: sent, Header: r.Header, PreviousRoot: root}
			q.next(waitsForTokens)
		}
	})
}

// getTokens reads the batch, and compares its tokens with the tokens that the trainer claims to have
// received. If the tokens differ and come from a data server, the server may be dishonest. Without a
// data server, the trainer is to blame, because it must read the same data as all other members.
func (a *Auditor) getTokens(q *auditCase) {
	r := q.result
	q.poll.ask(a.Tasks, a.Client.CompletionTime(), func(ctx context.Context) func() {
		tokens, err := data.Gather(ctx, a.Data, r.Batch, q.sequences, true)
		return func() {
			differ := err == nil && tokens.Hash() != r.Header.Batch
			switch {
			case err != nil && q.opening == nil && q.poll.requests >= leastAsked:
				q.next(waitsForOpening) // after that phase, this one is tried again
			case err != nil:
				a.Log.Debug("cannot read the tokens for an audit", "step", q.Step, "err", err)
			case differ && tokens.Receipt == nil:
				q.differ = true
				q.end(faulty, "the result's batch has different tokens than this client reads")
			case differ || q.opening == nil:
				q.tokens, q.differ = tokens, differ
				if differ {
					q.gathered.reset(len(q.chunks)) // from now on, only parts with a receipt are accepted
				}
				q.next(waitsForOpening)
			default:
				q.tokens = tokens
				q.next(waitsForEngine)
			}
		}
	})
}

// leastAsked is the number of failed requests for a batch after which this client first requests the
// opening, which may excuse the trainer, and then the batch again.
const leastAsked = 5

// askingTime defines when a trainer counts as silent: if no part of its opening has arrived for the
// given time and number of rounds.
type askingTime struct {
	time   time.Duration
	rounds uint32
	more   time.Duration // added to time once a part has arrived
	busy   time.Duration // added to time if the trainer answers that it is busy
}

// isSilent reports whether a trainer does not open its result although it is online. That is so if
// this client has asked for long enough since the last verified part arrived, from the trainer or
// from any other member. In addition, the trainer must be a healthy member whose optimizer includes
// the step, and a later result of the trainer must have arrived in one of the newest rounds. Such a
// result proves only that the trainer is online, not that its link is fast.
func (a *Auditor) isSilent(q *auditCase, minimum askingTime) bool {
	s, g := a.Client.State(), &q.gathered
	patience := minimum.time
	if g.some {
		patience += minimum.more
	}
	if g.busy {
		patience += minimum.busy
	}
	if q.phase != waitsForOpening || g.since.IsZero() || a.Tasks.Now().Sub(g.since) < patience || s.Progress.Step < g.step+minimum.rounds {
		return false
	}
	c, known := s.Member(q.Trainer)
	if !known || c.State != coordinator.Healthy || c.OptimizerSince > q.Step {
		return false
	}
	for step := s.Progress.Step - min(signsOfLife, s.Progress.Step); step < s.Progress.Step; step++ {
		if round, _ := a.Client.Round(step); round != nil && step > max(q.Step, q.asked.Step) && round.CameFrom(q.Trainer) {
			return true
		}
	}
	return false
}

// signsOfLife is the number of newest finished rounds in which a result is a sign of life.
const signsOfLife = 3

// tell reports the outcome of a case, and whether it was not reported before.
func (a *Auditor) tell(q *auditCase) (first bool) {
	if q.phase == isTold {
		return false
	}
	q.phase = isTold
	trainer := identity.ID(q.Trainer)
	a.Log.Debug("audited", "step", q.Step, "trainer", trainer.Short(), "outcome", string(q.outcome), "why", q.reason)
	a.Emit(event.Audit{
		Step: q.Step, Trainer: trainer.String(), Outcome: string(q.outcome), Opening: len(q.opening), Seconds: q.took.Seconds(), Detail: q.reason,
	})
	return true
}
