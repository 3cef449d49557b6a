package audit_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/audit"
)

func wider(l audit.Limits) audit.Limits { return (&audit.Reference{Limits: l}).Wider().Limits }

// TestAccusersTolerateMoreThanJuries checks that a jury rejects a report slightly beyond a limit,
// and that an accuser accepts it. If an accuser rejects a report, a jury rejects it too, although
// the jury's gradient differs by rounding.
func TestAccusersTolerateMoreThanJuries(t *testing.T) {
	limits := audit.F32Limits
	report := func(all, one float64, count int) audit.Report {
		r := audit.Report{Error: all}
		for range count {
			r.Chunks = append(r.Chunks, audit.ChunkReport{Error: one})
		}
		return r
	}
	for name, r := range map[string]audit.Report{
		"of all chunks":  report(limits.Error*1.001, 0, 3),
		"of more chunks": report(0, limits.Chunk*1.001, limits.Stray+1),
		"of one chunk":   report(0, limits.Worst*1.001, 1),
	} {
		if jury, accuser := r.Judge(limits), r.Judge(wider(limits)); jury != audit.Strange || accuser != audit.Passed {
			t.Errorf("%s: %s for the jury, %s for the accuser", name, jury, accuser)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SampledFrom([]audit.Limits{audit.F32Limits, audit.BF16Limits}).Draw(t, "limits")
		near := func(l float64) float64 { return l * rapid.Float64Range(0, 2).Draw(t, "part of a limit") }
		rounding := 1 + rapid.Float64Range(-0.2, 0.2).Draw(t, "rounding")
		seen, judged := audit.Report{Error: near(limits.Error)}, audit.Report{}
		judged.Error = seen.Error * rounding
		for range rapid.IntRange(0, 4).Draw(t, "chunks") {
			e := near(rapid.SampledFrom([]float64{limits.Chunk, limits.Worst}).Draw(t, "limit"))
			seen.Chunks, judged.Chunks = append(seen.Chunks, audit.ChunkReport{Error: e}), append(judged.Chunks, audit.ChunkReport{Error: e * rounding})
		}
		if seen.Judge(wider(limits)) == audit.Strange && judged.Judge(limits) != audit.Strange {
			t.Fatalf("accuser rejects %+v, jury accepts %+v", seen, judged)
		}
	})
}
