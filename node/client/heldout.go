package client

import (
	"context"
	"log/slog"
	"math"
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
	took  time.Duration // duration of the newest measurement, MaxInt64 if it took too long; 0: none yet
	spent time.Duration // duration of the epochs since the newest measurement

	model coordinator.Recorded // newest model that claim was called for; Step 0: none
	limit time.Duration        // for its measurement
	until time.Time
	state measuring
	loss  uint16 // claim; 0: none
}

// measuring is the progress of a measurement.
type measuring uint8

// Values of measuring.
const (
	notMeasured measuring = iota // the trainer is not idle yet
	measures
	measured // or not to be measured
)

// claim returns the claim about the epoch's model, which the trainer holds. It returns false while the
// model is being measured.
func (h *heldOut) claim(s *coordinator.State, model coordinator.Recorded, leaves bool) (loss uint16, done bool) {
	now := h.tasks.Now()
	if h.model != model {
		last := s.Progress.Step > s.Config.TotalSteps
		h.limit = time.Duration(s.Config.CooldownTime) * time.Millisecond / measuredShare
		if last {
			h.limit = keep.LongestAhead(s)
		}
		h.model, h.until, h.loss, h.state = model, now.Add(h.limit), 0, measured
		h.spent += time.Duration(s.StateStart-min(s.Epoch.StartTime, s.StateStart)) * time.Millisecond
		if h.worthwhile(last) {
			h.state = notMeasured
		}
	}
	switch {
	case h.state == measured:
	case leaves:
		h.stop()
	case !now.Before(h.until):
		if h.state == measures {
			h.took = math.MaxInt64 // this client does not try again
		}
		h.stop()
	case h.state == notMeasured && h.engine.Idle():
		h.measure()
	}
	return h.loss, h.state == measured
}

// worthwhile reports whether to measure the model of the epoch, which may be the run's last.
func (h *heldOut) worthwhile(last bool) bool {
	trainer, able := h.engine.trainer.(env.Measurer)
	if !able {
		return false
	}
	_, tokens := trainer.HeldOut()
	expected := h.took
	if expected == 0 && h.speed > 0 {
		expected = time.Duration(float64(tokens) / h.speed / 3 * float64(time.Second)) // without the backward pass
	}
	switch {
	case tokens == 0, expected == 0:
		return false
	case expected > h.limit:
		h.log.Info("not measuring the held-out loss: it takes too long; members would wait", "seconds", expected.Seconds(), "limit", h.limit.Seconds())
		return false
	}
	return last || h.spent >= measuredEvery*expected
}

// measure starts the measurement.
func (h *heldOut) measure() {
	trainer, model, begun := h.engine.trainer.(env.Measurer), h.model, h.tasks.Now()
	h.state = measures
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
		h.took, h.spent, h.loss = h.tasks.Now().Sub(begun), 0, claimedLoss(loss)
		h.log.Info("measured the held-out loss", "step", model.Step, "loss", loss, "sequences", sequences)
		h.emit(event.EvaluatedLoss(model.Step, loss, sequences, h.took))
	}, nil)
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
