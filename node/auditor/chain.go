package auditor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/event"
)

// Chain is the sequence of this client's results. The client makes the next result only when the
// outcome of the newest is known. Before that, an attested result is opened, and the momentum of any other
// result is rolled back. The loop and the training use a Chain concurrently.
type Chain struct {
	of      *Auditor // used only for fields that never change
	trainer env.Auditor

	mu     sync.Mutex
	newest link
}

// link is one result of this client.
type link struct {
	step    uint32 // 0: none was made
	sent    []codec.TensorResult
	receipt *data.Receipt // the data server's receipt for the batch; nil: none

	outcome        resultOutcome
	attestationSet bool      // the trainer knows the outcome
	over           time.Time // time of the first check for the outcome after the round; zero: not yet

	opening opening
	seed    [32]byte      // audit seed, once it is drawn
	senders *senderCounts // of the previous round; nil: no previous round in the epoch
}

// resultOutcome is the outcome of a result.
type resultOutcome uint8

const (
	undecided  resultOutcome = iota
	wasHeld                  // a quorum of witnesses holds it
	wasDropped               // not attested: the momentum must be rolled back
)

// opening is the state of opening a result.
type opening uint8

const (
	notDrawn opening = iota // the chunks to open are not known
	isDrawn
	isOpened
	cannotOpen // opening failed
)

// Made records a new result. The training calls it.
func (c *Chain) Made(payload []byte, receipt *data.Receipt) error {
	h, sent, err := c.trainer.Decode(payload)
	if err != nil {
		return fmt.Errorf("own result: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest = link{step: h.Step, sent: sent, receipt: receipt}
	return nil
}

// look returns the newest own result.
func (c *Chain) look() link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

// change changes the newest result if it belongs to step.
func (c *Chain) change(step uint32, change func(l *link)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest.step == step {
		change(&c.newest)
	}
}

// open opens the newest result once its outcome is known.
func (c *Chain) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.newest
	if l.opening != isDrawn || l.outcome == wasDropped {
		return
	}
	if err := c.show(l); err != nil {
		l.opening = cannotOpen
		c.of.Log.Error("cannot open this client's own result for auditors", "step", l.step, "err", err)
	}
}

// Finish opens the newest result, and tells the trainer its outcome. The training calls Finish before
// it makes the next result.
func (c *Chain) Finish() error {
	c.open()
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.newest
	if l.outcome == undecided || l.attestationSet {
		return nil
	}
	if err := c.trainer.SetAttested(l.step, l.outcome == wasHeld); err != nil {
		return fmt.Errorf("finalize own result of step %d: %w", l.step, err)
	}
	l.attestationSet = true
	return nil
}

func (c *Chain) show(l *link) error {
	shapes, begun := c.trainer.Shapes(), c.of.Tasks.Now()
	own := resultID{Trainer: c.of.me, Step: l.step}
	chunks, err := l.senders.drawn(l.seed, own, shapes, l.sent)
	if err != nil {
		return err
	}
	o, err := c.trainer.Open(l.step, chunks)
	if err != nil {
		return err
	}
	var receipt [64]byte
	if l.receipt != nil {
		receipt = l.receipt.Signature
	}
	parts, err := splitOpening(o, receipt, shapes)
	if err != nil {
		return err
	}
	l.opening = isOpened
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	c.of.Emit(event.Opened{Step: l.step, Bytes: size, Seconds: c.of.Tasks.Now().Sub(begun).Seconds()})
	if err := c.of.openings.keep(own, parts); err != nil {
		c.of.Log.Warn("cannot save an opening; it is lost if this client restarts", "step", l.step, "err", err)
	}
	return nil
}

// Chain returns the chain of this client's results, or nil in a run without audits.
func (a *Auditor) Chain() *Chain {
	trainer := a.Engine.Auditor()
	if trainer != nil && (a.chain == nil || a.chain.trainer != trainer) {
		a.chain = &Chain{of: a, trainer: trainer}
	}
	return a.chain
}

// ForgetMomentum records that the momentum is reset to zero before a step. All results that this
// client has signed so far, also in an earlier process, were made with the previous momentum.
func (a *Auditor) ForgetMomentum(step uint32) {
	a.chain, a.fresh = nil, max(step, a.Engine.Signed()+1)
}

// MayTrain determines the outcome of this client's newest result, and opens the result. It reports
// whether the client can train step.
func (a *Auditor) MayTrain(step uint32) bool {
	c := a.Chain()
	if c == nil {
		return true
	}
	l := c.look()
	if l.step == 0 || l.step >= step {
		return a.MayBegin()
	}
	switch l = a.follow(c); {
	case l.outcome == undecided:
		return false
	case l.outcome == wasHeld && (l.opening == cannotOpen || l.opening == notDrawn && a.seeds[l.step] == [32]byte{} && a.Client.State().RoundOfStep(l.step) == nil):
		// This result can no longer be opened. Other members must not take that for a refusal, so the
		// client announces an optimizer that started after the result.
		a.fresh = max(a.fresh, min(l.step+1, a.Client.State().Progress.Step))
		return a.MayBegin()
	}
	return (l.outcome == wasDropped || l.opening != notDrawn) && a.MayBegin()
}

// follow determines the outcome of this client's newest result, and opens it.
func (a *Auditor) follow(c *Chain) link {
	l := c.look()
	if l.step != 0 && l.outcome == undecided {
		a.decide(c, l.step)
	}
	if l.step != 0 && l.opening == notDrawn {
		a.draw(c, l.step)
	}
	return c.look()
}

// decide determines whether this client's result of a step is attested, once its round is over.
func (a *Auditor) decide(c *Chain, step uint32) {
	t, commitment := a.Client.Round(step)
	if t == nil && a.inEpoch() && step < a.Client.State().Progress.Step {
		a.restart(step)
	}
	if t == nil || !t.Final {
		return
	}
	now := a.Tasks.Now()
	outcome := t.Judge(now, false)
	isHeld, known := t.IsHeld(commitment, outcome)
	announced := commitment != tally.Commitment{}
	c.change(step, func(l *link) {
		if l.over.IsZero() {
			l.over = now
		}
		// Until members apply the round, they may learn of further results, and so find that this result
		// is attested. An unknown outcome counts as not attested only after that.
		waited := now.Sub(l.over) > tally.UnsureTimeout && a.hasApplied(step)
		switch {
		case !known && announced && !waited:
		case isHeld && announced:
			l.outcome = wasHeld
		default:
			l.outcome = wasDropped
		}
	})
}

// restart resets the momentum to zero, because this client can no longer determine the outcome of its
// newest result.
func (a *Auditor) restart(step uint32) {
	if !a.Engine.Idle() {
		return
	}
	a.Log.Warn("cannot determine whether this client's own result is attested; resetting the momentum", "step", step)
	now := a.Client.State().Progress.Step
	a.Engine.ResetOptimizer(func() { a.ForgetMomentum(now) })
}

// draw opens this client's result of a step once its seed is known.
func (a *Auditor) draw(c *Chain, step uint32) {
	seed, known := a.seeds[step]
	t, _ := a.Client.Round(step)
	if !known || t == nil {
		return
	}
	var before *senderCounts
	if step > t.EpochStart {
		round, found := a.past.round(step - 1)
		if !found {
			return // the previous round is not applied yet
		}
		before = round.Senders
	}
	c.change(step, func(l *link) { l.opening, l.seed, l.senders = isDrawn, seed, before })
	a.Tasks.Spawn(func(context.Context) func() {
		c.open()
		return func() {}
	})
}

// MayBegin reports whether this client may train: the run must know the first step that the momentum
// of the client's optimizer includes. Otherwise auditors would expect the momentum of an earlier
// process, and take the next result for cheating. If the run does not know that step, MayBegin makes
// the client leave. When the client takes its seat back, the run records a new first step. In a round
// that needs this client's proof for its quorum, the client stays as a witness, and does not train.
func (a *Auditor) MayBegin() bool {
	if a.Chain() == nil || a.clientOf(a.me).OptimizerSince >= a.fresh {
		return true
	}
	if a.Needed() {
		return false
	}
	a.Submit("withdraw", a.Client.State().Progress.Step, coordinator.Withdraw{Client: a.me}, func() {
		a.Log.Info("momentum reset; leaving briefly to announce it")
	})
	return false
}
