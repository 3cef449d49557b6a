package auditor

import "testing"

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
