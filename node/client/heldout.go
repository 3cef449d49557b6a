package client

import (
	"context"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/record/event"
)

// Limits of a measurement on held-out data. All members of an epoch wait for the reports of its model.
// In the last epoch the wait may be longer, because no member waits to train.
const (
	measuredShare = 10 // a measurement takes at most this part of the time limit of a Cooldown
	measuredUntil = 2  // and ends at the latest after this part, because a late report costs the member its seat
	measuredEvery = 20 // the epochs since the newest measurement took this many times as long as a measurement
)

// heldOut measures the model at the end of an epoch on held-out data. The result is a claim, which
// travels with the report of the model.
type heldOut struct {
	tasks  *env.Tasks
	engine *engine
	log    *slog.Logger
	emit   func(event.Body)

	speed float64       // tokens trained per second in the newest step; 0: none yet
	took  time.Duration // duration of the newest measurement; 0: none yet
	spent time.Duration // duration of the epochs since the newest measurement
	slow  bool          // a measurement had enough time, but did not end: this client does not try again

	over     uint64               // host's time at the start of the newest Cooldown that this client saw; 0: none
	overAt   time.Time            // when this client saw it first
	model    coordinator.Recorded // newest model that claim was called for; Step 0: none
	expected time.Duration        // of its measurement
	limit    time.Duration
	begun    time.Time
	until    time.Time
	state    measuring
	loss     uint16 // claim; 0: none
}

// measuring is the progress of a measurement.
type measuring uint8

// Values of measuring.
const (
	notMeasured measuring = iota // the trainer is not idle yet
	measures
	measured // or not to be measured
)

// begin records when a Cooldown begins for this client.
func (h *heldOut) begin(s *coordinator.State) {
	if h.over != s.StateStart {
		h.over, h.overAt = s.StateStart, h.tasks.Now()
	}
}

// claim returns the claim about the epoch's model, which the trainer holds. It returns false while the
// model is being measured.
func (h *heldOut) claim(s *coordinator.State, model coordinator.Recorded, leaves bool) (loss uint16, done bool) {
	now := h.tasks.Now()
	if h.model != model {
		h.consider(s, model)
	}
	switch {
	case h.state == measured:
	case leaves, !now.Before(h.until):
		h.giveUp(now)
	case h.state == notMeasured && h.until.Sub(now) < h.expected:
		h.stop()
	case h.state == notMeasured && h.engine.Idle():
		h.measure()
	}
	return h.loss, h.state == measured
}

// consider decides whether to measure a model.
func (h *heldOut) consider(s *coordinator.State, model coordinator.Recorded) {
	now, cooldown := h.tasks.Now(), time.Duration(s.Config.CooldownTime)*time.Millisecond
	last := s.Progress.Step > s.Config.TotalSteps
	h.limit = cooldown / measuredShare
	if last {
		h.limit = keep.LongestAhead(s)
	}
	h.model, h.until, h.loss, h.state = model, now.Add(h.limit), 0, measured
	if latest := h.overAt.Add(cooldown / measuredUntil); latest.Before(h.until) {
		h.until = latest
	}
	h.spent += time.Duration(s.StateStart-min(s.Epoch.StartTime, s.StateStart)) * time.Millisecond
	if h.worthwhile(last) {
		h.state = notMeasured
	}
}

// worthwhile reports whether to measure the model of the epoch, which may be the run's last.
func (h *heldOut) worthwhile(last bool) bool {
	trainer, able := h.engine.trainer.(env.Measurer)
	if !able || h.slow {
		return false
	}
	_, tokens := trainer.HeldOut()
	h.expected = h.took
	if h.expected == 0 && h.speed > 0 {
		h.expected = time.Duration(float64(tokens) / h.speed / 3 * float64(time.Second)) // without the backward pass
	}
	switch {
	case tokens == 0, h.expected == 0:
		return false
	case h.expected > h.limit:
		h.log.Info("not measuring the held-out loss: it takes too long; members would wait", "seconds", h.expected.Seconds(), "limit", h.limit.Seconds())
		return false
	}
	return last || h.spent >= measuredEvery*h.expected
}

// measure starts the measurement.
func (h *heldOut) measure() {
	trainer, model := h.engine.trainer.(env.Measurer), h.model
	h.state, h.begun = measures, h.tasks.Now()
	var loss float64
	start(h.engine, core.Measure{Step: model.Step}, func(ctx context.Context) (err error) {
		loss, err = trainer.Measure(ctx)
		return err
	}, func(err error) {
		if h.model != model || h.state != measures {
			return // stopped
		}
		if h.state = measured; err != nil {
			h.log.Warn("cannot measure the held-out loss", "step", model.Step, "err", err)
			return
		}
		sequences, _ := trainer.HeldOut()
		h.took, h.spent, h.loss = h.tasks.Now().Sub(h.begun), 0, claimedLoss(loss)
		h.log.Info("measured the held-out loss", "step", model.Step, "loss", loss, "sequences", sequences)
		h.emit(event.EvaluatedLoss(model.Step, loss, sequences, h.took))
	}, nil)
}

// giveUp stops a measurement that takes too long. The next one is expected to take at least twice as
// long.
func (h *heldOut) giveUp(now time.Time) {
	if h.state == measures && !now.Before(h.until) {
		spent := now.Sub(h.begun)
		h.took, h.spent, h.slow = max(h.took, 2*spent), 0, spent >= h.limit/2
	}
	h.stop()
}

// stop gives up a measurement that has not ended.
func (h *heldOut) stop() {
	if h.model.Step == 0 || h.state == measured {
		return
	}
	h.state = measured
	h.log.Info("not measuring the held-out loss: the run does not wait for it", "step", h.model.Step)
	h.engine.CancelMeasurement()
}
