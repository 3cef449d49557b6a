package train

import "time"

// Parts of training and applying in a Timing.
const (
	partGradient = "gradient" // part of Train: forward and backward passes
	partEncode   = "encode"   // part of Train: adding the gradient to the momentum, and making the result
	partDecode   = "decode"   // part of Apply: decoding the results
)

// Timing is the duration of a part of a step that has just ended.
type Timing struct {
	Step uint32
	Part string
	Took time.Duration
}

// timings reports durations to Options.Timed; nil: no reports.
type timings func(Timing)

// ended reports a part of a step that ends now.
func (t timings) ended(step uint32, part string, begun time.Time) {
	t.took(step, part, time.Since(begun))
}

// took reports a part of a step.
func (t timings) took(step uint32, part string, duration time.Duration) {
	if t != nil {
		t(Timing{Step: step, Part: part, Took: duration})
	}
}
