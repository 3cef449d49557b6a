package core

import (
	"math"
	"slices"
	"time"
)

// Differences of speeds, in levels: 8 × log₂ of the tokens per second. 8 levels are a factor of 2.
const (
	levelHysteresis = 0.5     // an offered level stays while the mean is at most this outside of it
	otherLevel      = 0.3 * 8 // the machine has another speed than before if the newest measurements differ by more
	slowLevel       = 0.4 * 8 // a measurement shows that the machine is slow at present if it is lower by more
)

// meanWeight is the weight of a new measurement in the mean, so measurements with a noise of 6 percent (0.7
// levels) change the mean by less than 0.2 levels. The first measurements have equal weights: one that is too
// high would otherwise count for many rounds.
const meanWeight = 0.1

// speed estimates how many tokens a member trains per second, from measurements of whole trainings. All
// numbers are levels. In the zero value nothing is known.
type speed struct {
	mean        float64
	newest      []float64 // at most three measurements, oldest first
	count       int       // measurements in the mean
	provisional bool      // the next measurement replaces mean, which is from a small or incomplete training
}

// levelOf returns the level of a speed.
func levelOf(tokens float64, took time.Duration) float64 {
	return 8 * math.Log2(tokens/max(took, time.Microsecond).Seconds())
}

// floorOf returns a level as it is offered.
func floorOf(level float64) uint8 { return uint8(max(1, min(math.Floor(level), 255))) }

// isKnown reports whether there is an estimate.
func (s *speed) isKnown() bool { return len(s.newest) > 0 }

// guess sets an estimate until the first measurement.
func (s *speed) guess(level float64) {
	s.mean, s.newest, s.count, s.provisional = level, []float64{level}, 0, true
}

// add adds a measurement. The mean follows slowly. If the median of the newest three measurements is far from
// it, the machine has another speed than before, and the mean becomes this median. One measurement that
// differs from the others changes nothing.
func (s *speed) add(level float64) {
	if !s.isKnown() || s.provisional {
		s.mean, s.newest, s.count, s.provisional = level, []float64{level}, 1, false
		return
	}
	s.newest = append(s.newest, level)
	s.newest = s.newest[max(0, len(s.newest)-3):]
	sorted := slices.Sorted(slices.Values(s.newest))
	median := sorted[(len(sorted)-1)/2] // the lower of two
	switch {
	case math.Abs(median-s.mean) > otherLevel:
		s.mean, s.count = median, 1
	case math.Abs(level-s.mean) <= otherLevel:
		s.count++
		s.mean += max(meanWeight, 1/float64(s.count)) * (level - s.mean)
	}
}

// level returns the level to offer after the member has offered another level; 0: none. If the newest
// measurement is much lower than the mean, it counts instead of the mean, because the next training
// will probably be as slow.
func (s *speed) level(offered uint8) uint8 {
	if !s.isKnown() {
		return 0
	}
	if newest := s.newest[len(s.newest)-1]; newest < s.mean-slowLevel {
		return floorOf(newest)
	}
	if low := float64(offered); offered > 0 && s.mean >= low-levelHysteresis && s.mean < low+1+levelHysteresis {
		return offered
	}
	return floorOf(s.mean)
}
