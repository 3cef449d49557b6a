package train

import "time"

// Parts of training and applying that are told apart.
const (
	partEncode = "encode" // of Train: the gradient into the momentum, and a result out of it
	partDecode = "decode" // of Apply: reading the results
)

// Timing is the duration of a part of a step that has just ended.
type Timing struct {
	Step uint32
	Part string
	Took time.Duration
}

// timed reports a part that ends now to Options.Timed.
func (m *member) timed(step uint32, part string, begun time.Time) {
	if m.report != nil {
		m.report(Timing{Step: step, Part: part, Took: time.Since(begun)})
	}
}
