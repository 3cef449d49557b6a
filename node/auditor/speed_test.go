package auditor

import (
	"testing"
	"time"
)

// TestFarLargerBatchesAreNotAudited checks that a client audits no batch that is much larger than its own, unless it
// has no batch.
func TestFarLargerBatchesAreNotAudited(t *testing.T) {
	for name, c := range map[string]struct {
		own, other uint64 // sequences
		audits     bool
	}{
		"equal batches": {8, 8, true}, "six times": {8, 48, true}, "more": {8, 49, false}, "no batch": {0, 49, true},
	} {
		r := newRig(t, nil)
		for i := range r.past.rounds {
			results := r.past.rounds[i].Results
			results[0].Batch.End = results[0].Batch.Start + c.own
			results[1].Batch.End = results[1].Batch.Start + c.other
			if c.own == 0 {
				r.past.rounds[i].Results = results[1:]
			}
		}
		r.throw(newest)
		if len(r.reviews) > 0 != c.audits {
			t.Errorf("%s: %d audits", name, len(r.reviews))
		}
	}
}

// TestInterruptedWorkIsNext checks that an interrupted recomputation is continued before others begin.
func TestInterruptedWorkIsNext(t *testing.T) {
	r := newRig(t, nil)
	r.spare, r.engine.busy = false, true
	r.onTrial(newest-1, newest-2)
	r.run(5 * time.Second)
	newer, older := r.trials[resultID{r.other, newest - 1}], r.trials[resultID{r.other, newest - 2}]
	if r.continuesOther(newer) || r.continuesOther(older) {
		t.Error("a trial waits for a recomputation that was not interrupted")
	}
	newer.interrupted = true
	if r.continuesOther(newer) || !r.continuesOther(older) {
		t.Error("the interrupted recomputation is not next")
	}
	older.interrupted = true
	if !r.continuesOther(newer) || r.continuesOther(older) {
		t.Error("of two interrupted recomputations, not only the first is next")
	}
	for _, step := range []uint32{newest - 3, newest - 2, newest - 1} {
		key := resultID{r.other, step}
		r.reviews[key] = &review{auditCase: auditCase{resultID: key, interrupted: step == newest-2}}
	}
	for i, want := range []uint32{newest - 2, newest - 1, newest - 3} {
		if got := r.inTurn()[i].Step; got != want {
			t.Errorf("review %d is of step %d, want %d", i, got, want)
		}
	}
}
