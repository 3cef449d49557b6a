package audit

import "testing"

// TestCoarseValuesSteer shows what docs/audit.md says is not found of rounded values: twice a coefficient is
// sent, and what that leaves with the other sign is sent as next to nothing until it is forgotten.
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
			t.Fatalf("round %d: %v of %v is found", round, value, left)
		}
		sent, left = sent+value, (left-value)*decay
	}
	if sent < 1.9 {
		t.Errorf("%v was sent for a computed value of 1: it is paid back, correct docs/audit.md", sent)
	}
}

// TestBlurHidesTurnedUpdates shows what docs/audit.md says is not found where rounding leads elsewhere: a turned
// update is within a blur of twice its length, and is not within one of a fifth of it.
func TestBlurHidesTurnedUpdates(t *testing.T) {
	for blur, want := range map[float64]Outcome{2: Passed, 0.2: Strange} {
		update := []float32{1, 0}
		e := &Reference{Updates: [][]float32{update}, Usual: []float64{1}, Blur: []float64{blur}, Decay: 0.95}
		f := ChunkReport{}
		e.compare(&f, 0, []float64{-1, 0}, []float64{0, 0}, 1)
		r := Report{Error: f.Error, Chunks: []ChunkReport{f}}
		if came := r.Judge((&Reference{Limits: LocalLimits}).Wider().Limits); came != want {
			t.Errorf("blur %v: a turned update %v with error %v, want %v", blur, came, f.Error, want)
		}
	}
}
