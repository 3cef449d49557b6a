package auditor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/record/event"
)

// auditCase is the way to what is to be thought of a trainer's result, for an auditor and for a juror
// alike. Whatever cannot be had is asked for again, until the round is not kept any more.
type auditCase struct {
	resultID
	phase phase
	poll  poll // of this phase

	asked coordinator.Progress // of the run when the opening was asked for first

	epochStart, coldSteps uint32
	result                heldResult
	claim                 audit.Claim // what the trainer says, with its opening once that is here
	chunks                []uint32    // that it has to open
	opening               []byte
	tokens                data.Batch
	differ                bool // from those that its trainer says it was given
	took                  time.Duration
	failed                int // computations of the gradient that did not fit

	outcome outcome
	reason  string
}

// phase is what a case waits for.
type phase uint8

const (
	waitsForRound phase = iota // and for the seed that says what is to be opened
	waitsForTokens
	waitsForOpening // asks its trainer, and others
	waitsForEngine  // to compute the gradient
	isFound
	isTold // to people
)

// outcome is what a case came to.
type outcome string

const (
	unclear   outcome = "unclear" // it cannot be known here
	wrongData outcome = "other data"
	notHeld   outcome = "not held" // there is no such result
	passed    outcome = "passed"
	faulty    outcome = "faulty"
	silent    outcome = "silent"
)

func (o outcome) guilty() bool { return o == faulty || o == silent }

// isOver reports whether it is known what came of a case.
func (q *auditCase) isOver() bool { return q.phase >= isFound }

// end ends a case.
func (q *auditCase) end(o outcome, format string, values ...any) {
	q.phase, q.outcome, q.reason = isFound, o, fmt.Sprintf(format, values...)
	q.tokens, q.claim = data.Batch{}, audit.Claim{}
}

// next begins the next phase.
func (q *auditCase) next(p phase) { q.phase, q.poll = p, poll{} }

// manner is how a case is made.
type manner struct {
	holders func() []identity.ID // who may have the opening, first its trainer
	accuses bool                 // only what is beyond wider limits is faulty, and only if it is when it is computed again
	engine  bool                 // the trainer may be used now
	within  time.Duration        // nothing else stops it for so long; 0: it gives way to all else
}

// pursue goes on with a case. Nothing here waits.
func (a *Auditor) pursue(q *auditCase, m manner) {
	switch q.phase {
	case waitsForRound:
		a.findResult(q)
	case waitsForOpening:
		a.getOpening(q, m)
	case waitsForTokens:
		a.getTokens(q)
	case waitsForEngine:
		if m.engine && a.Engine.Idle() && q.poll.due(a.Tasks.Now()) {
			a.recompute(q, m)
		}
	}
}

// findResult looks the result up, and whether it goes on from what it may.
func (a *Auditor) findResult(q *auditCase) {
	newest := a.Client.State().Progress.Step
	round, kept := a.past.Round(q.Step)
	seed, drawn := a.seeds[q.Step]
	switch {
	case !kept && a.hasApplied(q.Step), !drawn && q.Step+coordinator.StoredRounds < newest:
		q.end(unclear, "the round is not known here")
		return
	case !kept || !drawn:
		return // not applied yet, or not over
	}
	r, found := a.past.Find(q.Step, q.Trainer)
	switch {
	case !found && slices.Contains(round.Unheard, q.Trainer):
		q.end(unclear, "witnesses hold a result of it that nobody has shown this client")
		return
	case !found:
		q.end(notHeld, "it has no result in that round")
		return
	case !r.Read():
		q.end(unclear, "its result was not to be had")
		return
	}
	root, history := a.past.Previous(&r)
	switch history {
	case lineageUnknown:
		q.end(unclear, "it is not known here what it goes on from")
		return
	case lineageBroken:
		q.end(faulty, "it says that its momentum is that after step %d, which is not its newest result that is held", r.Header.Previous)
		return
	}
	var senders *senderCounts
	if q.Step > round.EpochStart {
		before, known := a.past.Round(q.Step - 1)
		if !known {
			q.end(unclear, "the round before is not known here")
			return
		}
		senders = before.Senders
	}
	q.result, q.epochStart, q.coldSteps = r, round.EpochStart, round.ColdSteps
	a.readResult(q, root, seed, senders)
}

// readResult reads the result, and works out which chunks are to be opened.
func (a *Auditor) readResult(q *auditCase, root, seed [32]byte, senders *senderCounts) {
	auditor, payloads, r, key := a.Engine.Auditor(), a.payloads, q.result, q.resultID
	q.poll.ask(a.Tasks, requestTimeout, func(context.Context) func() {
		payload, err := payloads.Get(r.Commitment)
		var sent []codec.TensorResult
		if err == nil {
			_, sent, err = auditor.Decode(payload)
		}
		var chunks []uint32
		if err == nil {
			chunks, err = senders.Drawn(seed, key, auditor.Shapes(), sent)
		}
		return func() {
			if err != nil {
				q.end(unclear, "%v", err)
				return
			}
			if a.rateIsOver(q) {
				return
			}
			q.chunks, q.claim = chunks, audit.Claim{Result: sent, Header: r.Header, PreviousRoot: root}
			q.next(waitsForTokens)
		}
	})
}

// getOpening asks for what the trainer shows: the trainer, and others that may have it. What does not
// lead to the roots of its results is no opening, whoever sends it; nor is one without a receipt for the
// tokens that a data server gave it, where they are others than this client was given.
func (a *Auditor) getOpening(q *auditCase, m manner) {
	if !q.poll.due(a.Tasks.Now()) {
		return
	}
	if q.poll.asked == 0 {
		q.asked = a.Client.State().Progress
	}
	holders := m.holders()
	if len(holders) > 0 { // one that does not answer does not keep this client from the others
		first := q.poll.asked % len(holders)
		holders = slices.Concat(holders[first:], holders[:first])
	}
	auditor, openings, network, now := a.Engine.Auditor(), a.openings, a.Network, a.Tasks.Now()
	key, claim, chunks, shapes, tokens, differ := q.resultID, q.claim, q.chunks, auditor.Shapes(), q.tokens, q.differ
	tasks, timeout := a.Tasks, holderTime+time.Duration(min(q.poll.asked, maxSlower))*slower
	q.poll.ask(tasks, time.Duration(1+len(holders))*timeout, func(ctx context.Context) func() {
		read := func(bytes []byte) bool {
			shown, err := decodeDisclosure(bytes)
			if err == nil {
				claim.Opening, err = audit.DecodeOpening(shown.Opening, shapes)
			}
			return err == nil && claim.Binds(shapes, chunks) && (!differ || excuses(shown, tokens, claim.Header))
		}
		bytes := openings.Get(key)
		found := bytes != nil && read(bytes)
		for _, holder := range holders {
			if found {
				break
			}
			ctx, cancel := tasks.WithTimeout(ctx, timeout)
			var err error
			if bytes, err = askOpening(ctx, network, holder, key, shapes); err == nil {
				found = read(bytes)
			}
			cancel()
		}
		var fault audit.Fault
		if found {
			fault = auditor.CheckLight(claim)
		}
		return func() {
			if !found || a.rateIsOver(q) {
				return
			}
			_ = openings.Keep(key, bytes, now) // others can have it from here
			q.opening, q.claim = bytes, claim
			switch {
			case fault != audit.FaultNone:
				q.end(faulty, "what it opens breaks a rule: %v", fault)
			case q.differ:
				q.end(wrongData, "its data server signed other tokens for it than for this client: the server lies")
				a.Log.Error("a data server gave two members other tokens for the same batch", "step", q.Step, "batch", q.result.Batch, "trainer", identity.ID(q.Trainer).Short())
			case q.tokens.Sequences == nil:
				q.next(waitsForTokens)
			default:
				q.next(waitsForEngine)
			}
		}
	})
}

// One is asked for an opening for holderTime the first time, and for longer each time: when a whole jury
// asks at once, the line of a member that opens honestly may be too slow to serve all of them sooner.
const (
	holderTime = requestTimeout / 2
	slower     = 2 * time.Second
	maxSlower  = 6
)

// excuses reports whether the data server of these tokens signed for a trainer that it gave it those of
// its result's header.
func excuses(e disclosure, tokens data.Batch, h codec.Header) bool {
	receipt := *tokens.Receipt
	receipt.Hash, receipt.Signature = h.Batch, e.Receipt
	return receipt.Verify()
}

// getTokens gets the batch, and compares it with what its trainer says that it was given. Where both
// have it from a data server, that may have lied; else it is on the trainer to have read what all read.
func (a *Auditor) getTokens(q *auditCase) {
	r := q.result
	q.poll.ask(a.Tasks, a.Client.SettleTime(), func(ctx context.Context) func() {
		tokens, err := data.AuditBatch(ctx, a.Data, r.Batch)
		return func() {
			differ := err == nil && tokens.Hash() != r.Header.Batch
			switch {
			case err != nil && q.opening == nil && q.poll.asked >= leastAsked:
				q.next(waitsForOpening) // and then again for this
			case err != nil:
				a.Log.Debug("tokens for an audit", "step", q.Step, "err", err)
			case differ && tokens.Receipt == nil:
				q.differ = true
				q.end(faulty, "it says that its batch has other tokens than this client reads")
			case differ || q.opening == nil:
				q.tokens, q.differ = tokens, differ
				q.next(waitsForOpening)
			default:
				q.tokens = tokens
				q.next(waitsForEngine)
			}
		}
	})
}

// askingTime is for how long, and for how many rounds, an opening is asked for before it is said that
// its trainer opens to nobody.
type askingTime struct {
	time   time.Duration
	rounds uint32
}

// leastAsked is how often it is asked for at least.
const leastAsked = 5

// isSilent reports whether a trainer does not open, although it is there: it was asked often enough and
// for long enough, is a member whose optimizer remembers the step, and a later result of it has come
// here in one of the newest rounds.
func (a *Auditor) isSilent(q *auditCase, least askingTime) bool {
	s := a.Client.State()
	if q.phase != waitsForOpening || !q.poll.isVain(a.Tasks.Now(), leastAsked, least.time) || s.Progress.Step < q.asked.Step+least.rounds {
		return false
	}
	c, known := s.Member(q.Trainer)
	if !known || c.State != coordinator.Healthy || c.OptimizerSince > q.Step {
		return false
	}
	for step := s.Progress.Step - min(signsOfLife, s.Progress.Step); step < s.Progress.Step; step++ {
		if b, _ := a.Client.Round(step); b != nil && step > max(q.Step, q.asked.Step) && b.CameFrom(q.Trainer) {
			return true
		}
	}
	return false
}

// signsOfLife is in how many of the newest finished rounds a result is a sign of life.
const signsOfLife = 3

// tell tells what a case came to, and reports whether it was not told before.
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
