package core

import (
	"fmt"
	"time"
)

// Events of applying the counted results of finished rounds.
type (
	// Outstanding asks for the replica to include the results of all finished rounds up to the step
	// Want. The caller repeats it after every other event. It is about the next unapplied round.
	Outstanding struct {
		Replica    *Replica
		Want       uint32
		Known      bool // the round is over, belongs to the replica's epoch, and its proofs are known
		Speculated bool // the weights are the speculative ones after the round
	}

	// Judged follows an event with Ready.Judge.
	Judged struct {
		Step          uint32
		Outvoted      bool          // more members had another model
		MissingSince  *time.Time    // since when the outcome is incomplete; zero: it never was
		Completion    time.Duration // time limit to complete the round
		UnsureTimeout time.Duration // maximum time to ask peers for results that witnesses claim to hold, or may hold
		InVain        bool          // several attempts to fetch each missing result have failed
		Recorded      bool          // the run has recorded a model that includes the round, after its epoch
		WellAnswered  bool          // an honest member has answered a request about the round
		Judge         func(late bool) Verdict
	}

	// Early asks for the replica to include the results of the next finished round up to the step Want,
	// before a training needs them.
	Early struct {
		Step, Want uint32
		Known      bool // as in Outstanding; the member also knows the replica that the round's results must be made from
		Outvoted   bool
		Judge      func() Verdict
	}

	// Counted follows an event with Ready.Next of type Apply: the outcome of a round is known. The caller
	// repeats these events until the replica includes the round.
	Counted struct {
		Replica   *Replica
		Step      uint32
		Confirmed bool // the weights include the outcome, which the member predicted
		Copies
	}

	// Mispredicted means that a round ended differently than the member predicted.
	Mispredicted struct{ Step uint32 }

	// Applied means that the trainer has applied a round, or failed. After a failure, a part of the weights
	// may have changed.
	Applied struct {
		Step uint32
		Took time.Duration
		Err  error
	}
)

// CannotApply means that the trainer failed to apply a round.
type CannotApply struct {
	Step uint32
	Err  error
}

// Verdict is the outcome of a round, as far as this member knows it.
type Verdict struct {
	Missing int   // results that count and are not here
	Unsure  bool  // more proofs may come
	Claimed bool  // only few witnesses claim to hold the missing results
	NoRoom  error // reason why a missing result is not fetched, if that is a lack of memory
}

// ContinuesWithout means that the member applies a round without results that only a few witnesses claim to
// hold.
type ContinuesWithout struct {
	Step    uint32
	Results int
}

func (Outstanding) event()  {}
func (Judged) event()       {}
func (Early) event()        {}
func (Counted) event()      {}
func (Mispredicted) event() {}
func (Applied) event()      {}

func (ContinuesWithout) report() {}
func (CannotApply) report()      {}

// When an epoch is over and the run has recorded its model, a client need not continue to look for
// results of that epoch, because it can load the model instead. It abandons a result after
// LastAttempts attempts to fetch it, and not before lastTimeout.
const (
	LastAttempts = 3
	lastTimeout  = 10 * time.Second
)

// outstanding advances the replica by at most one round: it frees the trainer, or asks for the outcome of
// the next unapplied round.
func (c *common) outstanding(e Outstanding) {
	step := e.Replica.Step + 1
	if step > e.Want {
		return
	}
	if _, audits := c.Jobs.Work().(Recompute); !c.Jobs.Idle() && !audits && !e.Speculated {
		c.Jobs.cancelTraining(none)
		return
	}
	if !e.Known {
		c.ready.Desynchronise = fmt.Sprintf("this client missed the outcome of step %d", step)
		return
	}
	c.ready.Judge = true
}

// judged applies the round if all results that count are here. The member is desynchronised if they do not
// come in time, or if the other members have another model.
func (c *common) judged(e Judged) {
	if e.Outvoted {
		c.ready.Desynchronise = fmt.Sprintf("fewer members had this client's model in step %d than another model", e.Step)
		return
	}
	since := func() time.Duration { return c.now.Sub(*e.MissingSince) }
	incomplete := !e.MissingSince.IsZero()
	gone := incomplete && e.Recorded && since() > lastTimeout && e.InVain
	late := gone || incomplete && since() > e.Completion
	verdict := e.Judge(late)
	if !incomplete && (verdict.Missing > 0 || verdict.Unsure) {
		*e.MissingSince = c.now
	}
	switch {
	case verdict.Missing == 0 && (!verdict.Unsure || since() > e.UnsureTimeout):
		c.ready.Next = Apply{Step: e.Step}
	case verdict.Claimed && since() > e.UnsureTimeout && e.WellAnswered:
		c.report(ContinuesWithout{e.Step, verdict.Missing})
		c.ready.Next = Apply{Step: e.Step}
	case late && verdict.NoRoom != nil && !gone: // after a return to the epoch, memory would be missing again
		c.ready.Fail = fmt.Errorf("get the results of step %d from peers: %w", e.Step, verdict.NoRoom)
	case late:
		c.ready.Desynchronise = fmt.Sprintf("cannot get %d results of step %d from peers", verdict.Missing, e.Step)
	default:
		c.ready.AskPeers = true
	}
}

// applying applies the outcomes of rounds.
type applying struct {
	failures int // consecutive failures of the trainer
}

const maxApplyFailures = 3 // consecutive failures before the member gives up

// early applies a round if all of its results are here. Otherwise it does nothing: it neither asks peers
// nor gives up the replica.
func (c *common) early(e Early) {
	if e.Step > e.Want || !e.Known || e.Outvoted {
		return
	}
	if v := e.Judge(); v.Missing == 0 && !v.Unsure {
		c.ready.Next = Apply{Step: e.Step}
	}
}

// counted applies the outcome of a round, unless the weights include it already. A recomputation that is
// not urgent stops for it. A model that is due comes first, because the weights change.
func (a *applying) counted(c *common, i *intermediate, e Counted) {
	switch {
	case e.Confirmed:
		if c.due(e.Replica, e.Step, e.Copies) { // the trainer already continues
			i.owed = e.Step
		}
		a.included(c)
	case !c.Jobs.Idle():
		c.Jobs.cancelRecomputation(false)
	case e.Step <= e.Replica.Has:
		a.included(c)
	case i.owes(c, e.Replica, e.Copies):
		i.look(c, Idle{e.Replica, e.Copies})
	default:
		c.ready.Next = Apply{e.Step, c.due(e.Replica, e.Step, e.Copies)}
	}
}

// included records that the weights include a round.
func (a *applying) included(c *common) { a.failures, c.ready.Included = 0, true }

// applied handles the end of applying a round. After a failure the weights cannot be used any more.
func (a *applying) applied(c *common, e Applied) {
	if e.Err == nil {
		a.failures, c.Outlook.Took = 0, e.Took
		return
	}
	a.failures++
	c.report(CannotApply{e.Step, e.Err})
	if a.failures >= maxApplyFailures {
		c.ready.Fail = fmt.Errorf("apply results of step %d: %w", e.Step, e.Err)
		return
	}
	c.ready.Desynchronise = "applying results failed: " + e.Err.Error()
}

// mispredicted gives up the training that began ahead, from a prediction that proved wrong.
func (c *common) mispredicted(e Mispredicted) {
	c.Outlook.erred(e.Step)
	c.Jobs.cancelTraining(func(of uint32) bool { return of != e.Step+1 })
}
