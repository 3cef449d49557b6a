package train

import (
	"sync/atomic"

	"github.com/psyche-go/psyche/learn/train/schedule"
	"github.com/psyche-go/psyche/record/config"
)

// rates computes the learning rates of a run's steps. It is safe for concurrent use.
type rates struct {
	schedule schedule.Schedule
	cold     atomic.Pointer[schedule.ColdStart] // nil: none
}

func newRates(c config.LRSchedule) (*rates, error) {
	s, err := schedule.New(c)
	if err != nil {
		return nil, err
	}
	return &rates{schedule: s}, nil
}

// lr returns the learning rate of a step, for its gradient and its results.
func (r *rates) lr(step uint32) float32 {
	var cold schedule.ColdStart
	if set := r.cold.Load(); set != nil {
		cold = *set
	}
	return cold.LR(r.schedule, step)
}
