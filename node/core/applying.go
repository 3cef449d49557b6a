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
)

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

func (Outstanding) event() {}
func (Judged) event()      {}

func (ContinuesWithout) report() {}

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
		c.Jobs.CancelTraining(None)
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
		c.ready.Next = Apply{e.Step}
	case verdict.Claimed && since() > e.UnsureTimeout && e.WellAnswered:
		c.report(ContinuesWithout{e.Step, verdict.Missing})
		c.ready.Next = Apply{e.Step}
	case late && verdict.NoRoom != nil && !gone: // after a return to the epoch, memory would be missing again
		c.ready.Fail = fmt.Errorf("get the results of step %d from peers: %w", e.Step, verdict.NoRoom)
	case late:
		c.ready.Desynchronise = fmt.Sprintf("cannot get %d results of step %d from peers", verdict.Missing, e.Step)
	default:
		c.ready.AskPeers = true
	}
}
