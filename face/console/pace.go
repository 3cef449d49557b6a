package console

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

const (
	timedRounds = 60 // newest rounds used to estimate the remaining time
	leastTimed  = 3  // minimum number of rounds for an estimate
)

// Pace estimates the remaining time of a run from the durations of its newest rounds. The time between rounds counts,
// except the time in which the run is paused or has too few members. The zero value is ready to use.
type Pace struct {
	step  uint32          // of the newest started round; 0: none yet
	began time.Time       // its start
	took  []time.Duration // durations of the newest rounds, including the gaps after them

	waits time.Time     // start of the current wait for members or for the end of a pause; zero: there is none
	idle  time.Duration // such waits since began
}

// See processes a state of the run.
func (p *Pace) See(at time.Time, s event.State) {
	if !p.waits.IsZero() {
		p.idle += max(0, at.Sub(p.waits))
		p.waits = time.Time{}
	}
	switch s.RunState {
	case coordinator.Paused.String():
		p.waits = at
	case coordinator.WaitingForMembers.String():
		if s.Pending < s.Needed {
			p.waits = at
		}
	case coordinator.RoundTrain.String():
		if s.Step != p.step {
			p.start(s.Step, at)
		}
	}
}

// start records the start of a round.
func (p *Pace) start(step uint32, at time.Time) {
	if !p.began.IsZero() && step > p.step {
		p.took = append(p.took, max(0, at.Sub(p.began)-p.idle)/time.Duration(step-p.step))
		p.took = p.took[max(0, len(p.took)-timedRounds):]
	}
	p.step, p.began, p.idle = step, at, 0
}

// Left estimates the time for a number of steps from the newest rounds and the gaps between them,
// with the times for the faster and the slower quarter of rounds as the range. The dashboard uses
// the same estimate. 0 means unknown.
func (p *Pace) Left(steps uint32) (likely, minimum, maximum time.Duration) {
	if len(p.took) < leastTimed {
		return 0, 0, 0
	}
	sorted, sum := slices.Sorted(slices.Values(p.took)), time.Duration(0)
	for _, one := range sorted {
		sum += one
	}
	quantile := func(quarters int) time.Duration { return sorted[min(len(sorted)-1, len(sorted)*quarters/4)] }
	mean := sum / time.Duration(len(sorted))
	between := max(0, mean-quantile(2)) // the mean includes the pauses between epochs, and the quartiles of single rounds do not
	times := func(each time.Duration) time.Duration {
		return time.Duration(min(float64(each)*float64(steps), math.MaxInt64/2))
	}
	likely = times(mean)
	return likely, min(likely, times(quantile(1)+between)), max(likely, times(quantile(3)+between))
}

// Text returns the estimate for a number of steps, such as "3 min left (2 min to 5 min)", without a range if its ends
// read the same. It returns "" if the time is unknown.
func (p *Pace) Text(steps uint32) string {
	likely, minimum, maximum := p.Left(steps)
	if steps == 0 || likely <= 0 {
		return ""
	}
	text, from, to := meter.Span(likely)+" left", meter.Span(minimum), meter.Span(maximum)
	if from != to {
		text += fmt.Sprintf(" (%s to %s)", from, to)
	}
	return text
}
