package schedule

import (
	"errors"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/record/config"
)

// errInvalid means that a schedule's numbers are invalid.
var errInvalid = errors.New("invalid learning-rate schedule")

// Schedule is the learning rate over the steps of a run: a linear rise from init to base, then
// stages that fall from one rate to the next, then the last rate forever.
type Schedule struct {
	base, init  float64
	warmupSteps uint32
	stages      []stage
}

// stage changes the rate from one value to another in a number of steps.
type stage struct {
	steps    uint32
	from, to float64
	cosine   bool // half a cosine instead of a straight line
}

// New returns the schedule of a run's definition.
func New(c config.LRSchedule) (Schedule, error) {
	var s Schedule
	total := func(base, init float64, warmup, total uint32, final float64, cosine bool) error {
		s = Schedule{base: base, init: init, warmupSteps: warmup}
		if total <= warmup {
			return fmt.Errorf("%w: total_steps %d is not more than warmup_steps %d", errInvalid, total, warmup)
		}
		s.stages = []stage{{total - warmup, base, final, cosine}}
		return nil
	}
	var err error
	switch {
	case c.Constant != nil:
		s = Schedule{base: c.Constant.BaseLR, init: c.Constant.WarmupInitLR, warmupSteps: c.Constant.WarmupSteps}
	case c.Linear != nil:
		l := c.Linear
		err = total(l.BaseLR, l.WarmupInitLR, l.WarmupSteps, l.TotalSteps, l.FinalLR, false)
	case c.Cosine != nil:
		l := c.Cosine
		err = total(l.BaseLR, l.WarmupInitLR, l.WarmupSteps, l.TotalSteps, l.FinalLR, true)
	case c.WarmupStableDecay != nil:
		l := c.WarmupStableDecay
		s = Schedule{base: l.BaseLR, init: l.WarmupInitLR, warmupSteps: l.WarmupSteps}
		s.stages = []stage{
			{l.StableSteps, l.BaseLR, l.BaseLR, false},
			{l.CosineDecaySteps, l.BaseLR, l.CosineDecayFinalLR, true},
			{l.LinearDecaySteps, l.CosineDecayFinalLR, l.LinearDecayFinalLR, false},
		}
	default:
		err = fmt.Errorf("%w: none of Constant, Linear, Cosine, WarmupStableDecay is set", errInvalid)
	}
	if err != nil {
		return Schedule{}, err
	}
	return s, s.check()
}

func (s Schedule) check() error {
	rates := []float64{s.base, s.init}
	for _, stage := range s.stages {
		rates = append(rates, stage.to)
	}
	for _, rate := range rates {
		if !(rate >= 0 && rate <= math.MaxFloat32) {
			return fmt.Errorf("%w: learning rate %v, want a number that is not negative", errInvalid, rate)
		}
	}
	return nil
}

// LR returns the learning rate of a step. Only the final value is rounded to single precision.
func (s Schedule) LR(step uint32) float32 { return float32(s.rate(step)) }

// rate is LR before rounding. Explicit conversions prevent compilers from fusing a product and a
// sum into one rounding.
func (s Schedule) rate(step uint32) float64 {
	if step < s.warmupSteps {
		rise := float64((s.base - s.init) * float64(step))
		return s.init + float64(rise/float64(s.warmupSteps))
	}
	step -= s.warmupSteps
	last := s.base
	for _, stage := range s.stages {
		if step < stage.steps {
			return stage.rate(step)
		}
		step -= stage.steps
		last = stage.to
	}
	return last
}

func (s stage) rate(step uint32) float64 {
	fall := 1 - float64(float64(step)/float64(s.steps))
	if s.cosine {
		fall = halfCosine(step, s.steps)
	}
	return s.to + float64((s.from-s.to)*fall)
}

// ColdStart scales the learning rate linearly from 0 at Start to 1 at Start+Steps. The
// zero value scales nothing.
type ColdStart struct {
	Start, Steps uint32
}

// factor returns the scale of a step, in [0, 1].
func (c ColdStart) factor(step uint32) float64 {
	if c.Steps == 0 || step < c.Start || step-c.Start >= c.Steps {
		return 1
	}
	return float64(step-c.Start) / float64(c.Steps)
}

// LR returns the learning rate of a step with the cold start's scale.
func (c ColdStart) LR(s Schedule, step uint32) float32 {
	return float32(s.rate(step) * c.factor(step))
}
