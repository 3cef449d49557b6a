package core

import (
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// HeldOut describes how a member can measure models on held-out data.
type HeldOut struct {
	Tokens int           // of the held-out data; 0: the trainer cannot measure models
	Last   time.Duration // time limit of the measurement of the run's last model
}

// Evaluated is the result of a Measure. It is an event.
type Evaluated struct {
	Measure
	Loss      float64
	Claim     uint16 // the loss, as the member claims it; 0: none
	Sequences int    // of the held-out data
	Err       error
}

// Reports about measurements on held-out data.
type (
	// TooLong means that the member does not measure a model, because the other members would wait.
	TooLong struct{ Expected, Limit time.Duration }

	// StopsMeasuring means that the member does not measure a model, because the run does not wait for it.
	StopsMeasuring struct{ Step uint32 }

	// HeldOutLoss is the loss of a model.
	HeldOutLoss struct {
		Evaluated
		Took time.Duration
	}
)

func (Evaluated) event() {}

func (TooLong) report()        {}
func (StopsMeasuring) report() {}
func (HeldOutLoss) report()    {}

// Limits of a measurement on held-out data. All members of an epoch wait for the reports of its model.
// In the last epoch the wait may be longer, because no member waits to train.
const (
	measuredShare = 10 // a measurement takes at most this part of the time limit of a Cooldown
	measuredUntil = 2  // and ends at the latest after this part, because a late report costs the member its seat
	measuredEvery = 20 // the epochs since the newest measurement took this many times as long as a measurement
)

// measuring decides when a member measures the model at the end of an epoch on held-out data. The result is
// a claim, which travels with the report of the model.
type measuring struct {
	speed float64       // tokens trained per second in the newest step; 0: none yet
	took  time.Duration // duration of the newest measurement; 0: none yet
	spent time.Duration // duration of the epochs since the newest measurement
	slow  bool          // a measurement had enough time, but did not end: this member does not try again

	over     uint64               // host's time at the start of the newest Cooldown that this member saw; 0: none
	overAt   time.Time            // when this member saw it first
	model    coordinator.Recorded // newest model that claim was called for; Step 0: none
	expected time.Duration        // of its measurement
	limit    time.Duration
	begun    time.Time
	until    time.Time
	state    progress
	loss     uint16 // claim; 0: none
}

// progress is the progress of a measurement.
type progress uint8

const (
	notMeasured progress = iota // the trainer is not idle yet
	measures
	measured // or not to be measured
)

// trained records the speed of a training that has a result.
func (h *measuring) trained(e Measured) {
	if e.Result && e.Took > 0 {
		h.speed = float64(e.Tokens) / e.Took.Seconds()
	}
}

// begin records when a Cooldown begins for this member.
func (h *measuring) begin(c *common) {
	if h.over != c.state.StateStart {
		h.over, h.overAt = c.state.StateStart, c.now
	}
}

// claim returns the claim about the epoch's model, which the trainer holds. It returns false while the
// model is being measured.
func (h *measuring) claim(c *common, m *Model, how HeldOut) (loss uint16, done bool) {
	if model := (coordinator.Recorded{Step: m.Step, Digest: m.Digest}); h.model != model {
		h.consider(c, model, how)
	}
	switch {
	case h.state == measured:
	case c.Leave.Begun(), !c.now.Before(h.until):
		h.giveUp(c)
	case h.state == notMeasured && h.until.Sub(c.now) < h.expected:
		h.stop(c)
	case h.state == notMeasured && c.Jobs.Idle():
		h.state, h.begun = measures, c.now
		c.ready.Next = Measure{h.model}
	}
	return h.loss, h.state == measured
}

// consider decides whether to measure a model.
func (h *measuring) consider(c *common, model coordinator.Recorded, how HeldOut) {
	s := c.state
	cooldown, last := time.Duration(s.Config.CooldownTime)*time.Millisecond, s.Progress.Step > s.Config.TotalSteps
	h.limit = cooldown / measuredShare
	if last {
		h.limit = how.Last
	}
	h.model, h.until, h.loss, h.state = model, c.now.Add(h.limit), 0, measured
	if latest := h.overAt.Add(cooldown / measuredUntil); latest.Before(h.until) {
		h.until = latest
	}
	h.spent += time.Duration(s.StateStart-min(s.Epoch.StartTime, s.StateStart)) * time.Millisecond
	if h.worthwhile(c, how.Tokens, last) {
		h.state = notMeasured
	}
}

// worthwhile reports whether to measure the model of the epoch, which may be the run's last.
func (h *measuring) worthwhile(c *common, tokens int, last bool) bool {
	if tokens == 0 || h.slow {
		return false
	}
	h.expected = h.took
	if h.expected == 0 && h.speed > 0 {
		h.expected = time.Duration(float64(tokens) / h.speed / 3 * float64(time.Second)) // without the backward pass
	}
	switch {
	case h.expected == 0:
		return false
	case h.expected > h.limit:
		c.report(TooLong{h.expected, h.limit})
		return false
	}
	return last || h.spent >= measuredEvery*h.expected
}

// evaluated handles the result of a measurement.
func (h *measuring) evaluated(c *common, e Evaluated) {
	if h.model != e.Recorded || h.state != measures {
		return // stopped
	}
	h.state = measured
	said := HeldOutLoss{Evaluated: e}
	if e.Err == nil {
		h.took, h.spent, h.loss = c.now.Sub(h.begun), 0, e.Claim
		said.Took = h.took
	}
	c.report(said)
}

// giveUp stops a measurement that takes too long. The next one is expected to take at least twice as
// long.
func (h *measuring) giveUp(c *common) {
	if h.state == measures && !c.now.Before(h.until) {
		spent := c.now.Sub(h.begun)
		h.took, h.spent, h.slow = max(h.took, 2*spent), 0, spent >= h.limit/2
	}
	h.stop(c)
}

// stop gives up a measurement that has not ended.
func (h *measuring) stop(c *common) {
	if h.model.Step == 0 || h.state == measured {
		return
	}
	h.state = measured
	c.report(StopsMeasuring{h.model.Step})
	c.Jobs.cancelMeasurement()
}
