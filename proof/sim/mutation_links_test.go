package sim

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// linkMutations break the protection of members on slow links.
var linkMutations = []struct {
	name  string
	rules rules
	first uint64 // first seed; earlier seeds do not catch the mutation, and cost time
}{
	{"interrupted transfers restart at byte 0", rules{restarts: true}, 3},
	{"late answers count as silence", rules{lateIsSilent: true}, 31},
	{"all requests are served at once", rules{servesAll: true}, 1},
}

func TestCheckerCatchesLinkMutations(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates many runs")
	}
	want := []check.Assertion{check.HonestSafe, check.NobodyFramed, check.KeepsSeat, check.InTurns}
	for _, m := range linkMutations {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for seed := m.first; seed <= 300; seed++ {
				r := Run(Options{Seed: seed, Clients: 16, Rounds: 12, Faults: scenario.Slanderer | scenario.Hog, Links: true, rules: m.rules})
				if r.Violation == nil {
					continue
				}
				if !slices.Contains(want, r.Violation.Assertion) {
					t.Errorf("seed %d: caught by an unexpected assertion: %v", seed, r.Violation)
				}
				t.Logf("caught by seed %d: %v", seed, r.Violation)
				return
			}
			t.Error("not caught within 300 seeds")
		})
	}
}
