package console

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/record/event"
)

// Rounds logs one line per round for people. The speed comes from the board of metrics, so pass each event
// to the board before it is passed to Rounds.
type Rounds struct {
	logger  *slog.Logger
	metrics func() map[string]float64
	fields  bool // for programs: one attribute per metric

	total   uint32 // steps of the run; 0: not known yet
	epoch   uint32
	first   uint32             // first step of the epoch
	rounds  uint32             // rounds of the epoch; 0: unknown
	losses  map[uint32]float64 // of own results that are not applied yet
	claimed event.Claimed      // of the newest completed round
	heldOut string             // digest of the newest checkpoint whose held-out loss was logged
	pace    Pace
	trial   uint32 // rounds of probation to go
	tried   bool   // it was on probation, and its end was not logged yet
}

// NewRounds returns a logger of rounds. metrics returns the values of the board. fields selects one attribute per metric,
// for programs.
func NewRounds(logger *slog.Logger, metrics func() map[string]float64, fields bool) *Rounds {
	return &Rounds{logger: logger, metrics: metrics, fields: fields, losses: make(map[uint32]float64)}
}

// See processes an event. It is an argument for event.Log's Watch.
func (r *Rounds) See(e event.Event) {
	switch body := e.Body.(type) {
	case event.State:
		r.total, r.epoch, r.first, r.rounds = body.TotalSteps, body.Epoch, body.EpochStart, body.EpochRounds
		r.trial, r.tried = body.Probation, r.tried || body.Probation > 0
		if body.Claimed != nil {
			r.claimed = *body.Claimed
		}
		r.held(body.HeldOut)
		r.pace.See(e.Time, body)
	case event.Trained:
		r.losses[body.Step] = float64(body.Loss)
	case event.Applied:
		if r.fields {
			r.logger.Info("round", r.attributes(body)...)
		} else {
			r.logger.Info(r.line(body))
		}
		for step := range r.losses {
			if step <= body.Step || step > body.Step+keptSteps {
				delete(r.losses, step)
			}
		}
	}
}

// held logs the held-out loss of a checkpoint once.
func (r *Rounds) held(h *event.HeldOut) {
	if h == nil || h.Digest == r.heldOut {
		return
	}
	r.heldOut = h.Digest
	if r.fields {
		r.logger.Info("held-out loss", "step", h.Step, "claimed_loss", h.Loss.Median, "claims", h.Loss.Count)
	} else {
		r.logger.Info(h.String())
	}
}

// attributes returns the log attributes of a round.
func (r *Rounds) attributes(e event.Applied) []any {
	said := []any{"step", e.Step, "of", r.total, "epoch", r.epoch, "counted", e.Counted, "lost", len(e.Lost) - e.Attested}
	if e.Attested > 0 {
		said = append(said, "not_counted_yet", e.Attested)
	}
	if r.trial > 0 {
		said = append(said, "probation_rounds", r.trial)
	}
	if round := r.round(e.Step); round > 0 {
		said = append(said, "epoch_round", round, "epoch_rounds", r.rounds)
	}
	if loss, own := r.losses[e.Step]; own {
		said = append(said, "loss", loss)
	}
	if r.claimed.Loss.Count > 0 {
		said = append(said, "claimed_loss", r.claimed.Loss.Median, "claimed_step", r.claimed.Step)
	}
	if speed := r.metrics()["train/tokens_per_sec"]; speed > 0 {
		said = append(said, "tokens_per_second", speed)
	}
	return said
}

// round returns the number of a step's round in the epoch; 0 for a different epoch, or if the
// number of rounds is unknown.
func (r *Rounds) round(step uint32) uint32 {
	if r.rounds == 0 || step < r.first || step-r.first >= r.rounds {
		return 0
	}
	return step - r.first + 1
}

// line returns the log line of a round.
func (r *Rounds) line(e event.Applied) string {
	parts := []string{fmt.Sprintf("step %d", e.Step)}
	if r.total > 0 {
		parts[0] = fmt.Sprintf("step %d of %d (%d %%), epoch %d", e.Step, r.total, 100*uint64(e.Step)/uint64(r.total), r.epoch)
	}
	if round := r.round(e.Step); round > 0 {
		parts[0] += fmt.Sprintf(" (%d %%)", 100*uint64(round)/uint64(r.rounds))
	}
	if loss, own := r.losses[e.Step]; own {
		parts = append(parts, fmt.Sprintf("loss %.4f", loss))
	} else if r.claimed.Loss.Count > 0 {
		parts = append(parts, fmt.Sprintf("loss %.4f, as other members report for step %d", r.claimed.Loss.Median, r.claimed.Step))
	}
	if speed := r.metrics()["train/tokens_per_sec"]; speed > 0 {
		parts = append(parts, shortNumber(speed)+" tok/s")
	}
	if all, lost := len(e.Lost)+e.Counted, len(e.Lost)-e.Attested; lost > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d results lost", lost, all))
	}
	switch {
	case r.trial > 0:
		parts = append(parts, event.OnProbation(r.trial, "your"))
	case r.tried && (e.OwnCounted || e.OwnAttested): // a member that was dropped has no probation either
		r.tried = false
		parts = append(parts, "probation is over: from now on, your work counts")
	case e.OwnAttested:
		parts = append(parts, "your work was checked but not counted, because your optimizer warms up")
	}
	if r.total > e.Step {
		if left := r.pace.Text(r.total - e.Step); left != "" {
			parts = append(parts, left)
		}
	}
	return strings.Join(parts, ", ")
}

// shortNumber formats a number with three digits, as the dashboard does: 1.2 k, 340.
func shortNumber(value float64) string {
	for _, unit := range []struct {
		name string
		size float64
	}{{" G", 1e9}, {" M", 1e6}, {" k", 1e3}} {
		if value >= unit.size*0.9995 {
			return threeDigits(value/unit.size) + unit.name
		}
	}
	return threeDigits(value)
}

// threeDigits formats a number without an exponent.
func threeDigits(value float64) string {
	digits := 0
	switch {
	case value < 10:
		digits = 2
	case value < 100:
		digits = 1
	}
	text := strconv.FormatFloat(value, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
