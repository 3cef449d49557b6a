package audit

import "testing"

// TestAccusersAllowForMoreBlur: what rounding changes differs from machine to machine as well. A claim that a jury
// passes, whose samples of it are twice as large as the accuser's, is nothing to accuse of: the accuser would lose
// its seat.
func TestAccusersAllowForMoreBlur(t *testing.T) {
	judge := func(blur float64, accuses bool) Outcome {
		e := &Reference{Updates: [][]float32{{1, 0}}, Usual: []float64{1}, Limits: LocalLimits, Blur: []float64{blur}, Decay: 0.95}
		if accuses {
			e = e.Wider()
		}
		f := ChunkReport{}
		e.compare(&f, 0, []float64{0.5, 0}, []float64{0, 0}, 1)
		return Report{Error: f.Error, Chunks: []ChunkReport{f}}.Judge(e.Limits)
	}
	if jury := judge(0.5, false); jury != Passed {
		t.Fatalf("the jury: %v", jury)
	}
	if accuser := judge(0.25, true); accuser != Passed {
		t.Errorf("the accuser: %v, and it is ejected when the jury passes it", accuser)
	}
	for _, accuses := range []bool{false, true} {
		if came := judge(0.001, accuses); came != Strange {
			t.Errorf("accuses %v: half an update that is left out is %v where rounding changes next to nothing", accuses, came)
		}
	}
}
