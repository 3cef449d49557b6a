package train

import (
	"errors"
	"log/slog"
)

// maxStrikes is the number of failures in a row after which an optimizer leaves its device.
const maxStrikes = 3

// strikes counts the failures of a device in a row.
type strikes struct {
	failures int
	newest   comparisons // step of the newest failure
}

// next counts a failure in a step or in the step after it, and reports whether there were too many.
func (s *strikes) next(step comparisons) bool {
	if step > s.newest+1 {
		s.failures = 0
	}
	s.failures, s.newest = s.failures+1, step
	return s.failures >= maxStrikes
}

// stays ends the failure of a step, which has cost a batch at most: undefined values become zeros, and the next step
// runs on the device. It returns false if the optimizer must leave the device: because the device computes other bits
// than the CPU, has failed too often, or cannot set the values.
func (r *resident) stays(log *slog.Logger) bool {
	often := r.strikes.next(r.steps)
	if often || errors.Is(r.failed, errBits) {
		return false
	}
	reset := r.torn
	if reset && r.clear() != nil {
		return false
	}
	log.Warn("the device failed in a step; the optimizer stays on it", "device", r.on.twin.Engine().Device().String(),
		"because", r.failed, "in a row", r.strikes.failures, "leaves the device after", maxStrikes, "momentum is zero again", reset)
	r.failed = nil
	return true
}
