package core

import (
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Events of training.
type (
	// Turn compares the trainer's work with the member's batch of the running round. The caller repeats
	// it after every other event.
	Turn struct {
		Part    *Part
		Own     *assign.BatchID // the member's batch; nil: none
		After   bool            // the weights are too new for the round
		MaySign bool            // a result of the round may be signed
	}

	// Ahead compares the trainer's work with the member's batch of the next round. It follows Turn.
	Ahead struct {
		Part    *Part
		Own     *assign.BatchID
		Replica *Replica // nil: none
		Lag     uint32   // the run's apply_lag
		Next    func() Prediction
		Speculation
	}

	// Permitted follows an event with Ready.Ask, if the auditor permits the training.
	Permitted struct{}

	// Tokens follows an event with Ready.Read. Read means that the tokens are here.
	Tokens struct{ Read bool }
)

// Prediction is the member's batch of the next round, if the members stay the same until then.
type Prediction struct {
	Step  uint32
	Batch assign.BatchID
	OK    bool // the member will have a batch, as far as is known
}

// Speculation describes whether the member can speculate on the running round.
type Speculation struct {
	Begun, Done bool          // a speculation has begun; it is complete
	Possible    bool          // the trainer can speculate, and the outcome of the round is not known
	Whole       func() bool   // reports whether the results of all members are here
	Leeway      time.Duration // how much later than usual the member's next result may come
	Judges      bool          // the member is in a jury
}

func (Turn) event()      {}
func (Ahead) event()     {}
func (Permitted) event() {}
func (Tokens) event()    {}

// training decides when a member trains, and on which batch.
type training struct {
	turn  *Turn  // waits for an answer; nil: none does
	ahead *Ahead // waits for an answer; nil: none does

	continues bool       // the training of turn began ahead of its round
	next      Prediction // of ahead
	read      bool       // its tokens are here
	owed      uint32     // step of a model to take first
}

// look asks for permission to train the batch of the running round, or to let a training continue that
// began ahead of it.
func (t *training) look(c *common, e Turn) {
	t.turn, t.ahead = nil, nil
	if e.Part.Trained || c.state.RunState != coordinator.RoundTrain {
		return
	}
	batch, ahead := c.Jobs.ahead(e.Part.Step)
	switch {
	case ahead && (e.Own == nil || batch != *e.Own): // the members differ from the prediction
		c.Jobs.Cancel()
	case ahead, e.Own != nil && !e.After && e.MaySign:
		t.turn, t.continues = &e, ahead
		c.ready.Ask = true
	}
}

// lookAhead asks for the tokens of the next batch, and forgets other tokens. With a lag of two rounds,
// the weights can always include the results that must be applied before the next round, so the
// exchange of results never delays a training. With a lag of one, that requires speculation.
func (t *training) lookAhead(c *common, owed uint32, e Ahead) {
	t.turn, t.ahead, t.owed = nil, nil, owed
	if e.Own != nil && !e.Part.Trained || !e.Replica.follows() {
		return
	}
	next := e.Next()
	c.ready.Forget = true
	if next.OK {
		c.ready.Keep = append(c.ready.Keep, next.Batch)
	}
	if e.Own != nil {
		c.ready.Keep = append(c.ready.Keep, *e.Own)
	}
	if batch, ahead := c.Jobs.ahead(e.Part.Step + 1); ahead && (!next.OK || batch != next.Batch) { // members have changed since the training started
		c.ready.CancelAhead = true
	}
	if next.OK {
		t.ahead, t.next = &e, next
		c.ready.Read = &next.Batch
	}
}

// permitted continues after the auditor's permission.
func (t *training) permitted(c *common) {
	switch {
	case t.turn != nil && t.continues:
		t.turn.Part.Trained = true
		c.Jobs.begin()
		c.ready.Begin = true
	case t.turn != nil:
		c.ready.Read = t.turn.Own
	case t.ahead != nil:
		t.start(c)
	}
}

// tokens trains the batch of the running round, or continues with the batch of the next round.
func (t *training) tokens(c *common, e Tokens) {
	if e.Read && (t.turn != nil || t.ahead != nil && t.ahead.Lag > 1) {
		c.Jobs.cancelRecomputation(false)
	}
	switch {
	case t.turn != nil && e.Read && c.Jobs.Idle():
		t.turn.Part.Trained = true
		c.ready.Next = Train{Step: t.turn.Part.Step}
	case t.ahead != nil && t.ahead.Lag > 1:
		t.read, c.ready.Ask = e.Read, true
	case t.ahead != nil:
		t.read = e.Read
		t.start(c)
	}
}

// start trains the batch of the next round, once the weights include the results before it. It does
// this once for a batch.
func (t *training) start(c *common) {
	e := t.ahead
	switch before := t.next.Step - e.Lag; {
	case !t.read, e.Part.ahead == t.next.Batch:
	case e.Lag == 1 && !e.speculated(c, t.owed), !c.Jobs.Idle():
	case e.Lag > 1 && e.Replica.Step < before:
		c.ready.Next = Apply{Step: before}
	default:
		e.Part.ahead = t.next.Batch
		c.ready.Next = Train{Step: t.next.Step, Batch: t.next.Batch, Ahead: true}
	}
}

// speculated reports whether the weights include the results of the running round, before it is decided
// that they count. It starts the speculation when the results of all members are here, and if it pays.
func (e *Ahead) speculated(c *common, owed uint32) bool {
	p := e.Part
	if e.Begun {
		return e.Done
	}
	if !e.Possible || e.Replica.Step != p.Step-1 || !e.Whole() {
		return false
	}
	if p.Whole.IsZero() {
		p.Whole = c.now
	}
	if c.Jobs.Idle() && c.Outlook.pays(p.Step, e.Leeway) && !e.Judges && owed != p.Step-1 {
		c.ready.Next = Speculate{p.Step}
	}
	return false
}
