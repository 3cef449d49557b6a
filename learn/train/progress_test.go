package train

import (
	"math"
	"testing"
)

// TestProgressOfATraining checks the parts of a training of two local steps with two micro-batches each.
func TestProgressOfATraining(t *testing.T) {
	var p progress
	want := func(complete, begun float64) {
		t.Helper()
		if c, b := p.parts(); math.Abs(c-complete) > 1e-9 || math.Abs(b-begun) > 1e-9 {
			t.Errorf("complete %v, begun %v; want %v, %v", c, b, complete, begun)
		}
	}
	p.reset()
	p.divide(2)
	for i := range 4 {
		quarter := float64(i) / 4
		done := p.begin(0.5)
		want(quarter, quarter+0.25)
		done()
		want(quarter+0.25, quarter+0.25)
	}
	p.reset()
	want(0, 0)
	p.begin(1)()
	p.begin(1)()
	want(1, 1)
}
