package audit

import "testing"

// TestAccusersDoubleTheTolerance checks that an accuser allows for a larger rounding tolerance than
// a jury, because rounding differs between machines. The accuser must accept a claim that a jury
// with samples of twice the size accepts. Otherwise the accuser would lose its seat.
func TestAccusersDoubleTheTolerance(t *testing.T) {
	judge := func(tolerance float64, accuses bool) Outcome {
		e := &Reference{Updates: [][]float32{{1, 0}}, Usual: []float64{1}, Limits: LocalLimits, Tolerance: []float64{tolerance}, Decay: 0.95}
		if accuses {
			e = e.Wider()
		}
		f := ChunkReport{}
		e.compare(&f, 0, []float64{0.5, 0}, []float64{0, 0}, 1)
		return Report{Error: f.Error, Chunks: []ChunkReport{f}}.Judge(e.Limits)
	}
	if jury := judge(0.5, false); jury != Passed {
		t.Fatalf("jury: %v", jury)
	}
	if accuser := judge(0.25, true); accuser != Passed {
		t.Errorf("accuser: %v, but the jury accepts the claim and would eject it", accuser)
	}
	for _, accuses := range []bool{false, true} {
		if came := judge(0.001, accuses); came != Strange {
			t.Errorf("accuser %v: half an update is missing, which is %v at a small rounding tolerance", accuses, came)
		}
	}
}
