package audit

import "testing"

// TestCoarseValuesSteer shows an attack with rounded values that docs/audit.md lists as undetected.
// The trainer first sends twice the value of a coefficient. The remainder in its momentum then has
// the opposite sign, and the trainer sends tiny values of it until it has decayed.
func TestCoarseValuesSteer(t *testing.T) {
	e := &Reference{Coarse: true}
	const decay = 0.95
	left, sent := 0.0, 0.0
	for round := range 100 {
		if round == 0 {
			left = 1
		}
		value := 2 * left
		if left < 0 {
			value = left / 1024
		}
		taken := Taken{Indices: []uint16{0}, Values: []float32{float32(value)}}
		if !e.largest([]float64{left, 0}, taken, 1, 1e-9) {
			t.Fatalf("round %d: %v of %v is detected", round, value, left)
		}
		sent, left = sent+value, (left-value)*decay
	}
	if sent < 1.9 {
		t.Errorf("%v was sent for a computed value of 1: the trainer pays it back, correct docs/audit.md", sent)
	}
}

// TestToleranceHidesTurnedUpdates shows an attack that docs/audit.md lists as undetected if
// rounding has a large effect. A negated update passes with a rounding tolerance of twice its
// length, but fails with a tolerance of a fifth of its length.
func TestToleranceHidesTurnedUpdates(t *testing.T) {
	for tolerance, want := range map[float64]Outcome{2: Passed, 0.2: Strange} {
		update := []float32{1, 0}
		e := &Reference{Updates: [][]float32{update}, Usual: []float64{1}, Tolerance: []float64{tolerance}, Decay: 0.95}
		f := ChunkReport{}
		e.compare(&f, 0, []float64{-1, 0}, []float64{0, 0}, 1)
		r := Report{Error: f.Error, Chunks: []ChunkReport{f}}
		if came := r.Judge((&Reference{Limits: LocalLimits}).Wider().Limits); came != want {
			t.Errorf("tolerance %v: a turned update %v with error %v, want %v", tolerance, came, f.Error, want)
		}
	}
}
