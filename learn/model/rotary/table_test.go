package rotary

import (
	"math"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// TestRows requests rows at the beginning, beyond the existing rows, and up to the longest
// sequence.
func TestRows(t *testing.T) {
	const most = 1000
	e := torchtest.Engine(t)
	before := torch.LiveTensors()
	var table Table
	made := 0
	turns := func() Turns {
		made++
		return Turns{Frequencies: []float32{1, 0.25, 1e-3}, Scale: 1.5}
	}
	for _, test := range []struct {
		first, count int64
		made         int
	}{{0, 4, 1}, {100, 156, 1}, {250, 8, 2}, {0, most, 3}, {most - 1, 1, 3}} {
		torchtest.Do(t, e, false, func(s *torch.Scope) error {
			cos, sin := table.Rows(s, test.first, test.count, most, turns)
			for i, got := range [][]float32{cos.Float32s(), sin.Float32s()} {
				if len(got) != int(3*test.count) {
					t.Fatalf("%d numbers for %d positions", len(got), test.count)
				}
				for at := range got {
					angle := float64(float32(test.first+int64(at/3)) * []float32{1, 0.25, 1e-3}[at%3])
					if want := float32([]float64{math.Cos(angle), math.Sin(angle)}[i] * 1.5); got[at] != want {
						t.Fatalf("table %d, position %d, pair %d: %v, want %v", i, test.first+int64(at/3), at%3, got[at], want)
					}
				}
			}
			return nil
		})
		if made != test.made {
			t.Errorf("positions %d to %d: made %d times, want %d", test.first, test.first+test.count, made, test.made)
		}
	}
	torchtest.Do(t, e, false, func(*torch.Scope) error {
		table.Free()
		table.Free() // no tensor remains
		return nil
	})
	if live := torch.LiveTensors(); live != before {
		t.Errorf("%d tensors are left, there were %d", live, before)
	}
}
