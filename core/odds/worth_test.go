package odds

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
)

// TestFreed compares Freed with manually counted choices.
func TestFreed(t *testing.T) {
	// Two of eight proofs may be missing: 1 + 8 + 28 choices.
	if got, want := Freed(8, 6, 32), 1-math.Pow(37, -1./32); math.Abs(got-want) > 1e-12 {
		t.Errorf("%v is freed, want %v", got, want)
	}
	if got := Freed(3, 3, 32); got != 0 {
		t.Errorf("%v is freed although no proof may be missing", got)
	}
}

// freed returns the table of README.md about a host that omits proofs.
func freed() string {
	var b strings.Builder
	b.WriteString("| witnesses | proofs it can leave out | chunks that it frees |\n|---|---|---|\n")
	for _, witnesses := range []int{4, 8, 16, 32} {
		quorum := assign.Quorum(witnesses)
		fmt.Fprintf(&b, "| %d | %d | %s |\n", witnesses, witnesses-quorum, percent(Freed(witnesses, quorum, audit.DefaultChunks)))
	}
	return b.String()
}

// worths returns the table of injections in README.md.
func worths() string {
	var b strings.Builder
	b.WriteString("| added, in lengths of a gradient | `compression_topk` | β = 0.9 | 0.99 | 0.999 |\n|---|---|---|---|---|\n")
	for _, k := range []int{8, 32} {
		for _, usual := range []float64{1, 8, 256} {
			fmt.Fprintf(&b, "| %g | %d |", usual, k)
			for _, beta := range []float64{0.9, 0.99, 0.999} {
				const repetitions, chunk = 4, 4096
				r, sum := rand.New(rand.NewPCG(1, 2)), 0.0
				for range repetitions {
					sum += Injection{Chunk: chunk, TopK: k, Beta: beta, Usual: usual}.Worth(chunk/k, r)
				}
				fmt.Fprintf(&b, " %.0f |", sum/repetitions)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// steady returns the table of README.md about members that always add the largest undetected error.
func steady() string {
	var b strings.Builder
	b.WriteString("| limit | β = 0.9 | 0.99 | 0.999 |\n|---|---|---|---|\n")
	for _, limit := range []struct {
		name string
		of   audit.Limits
	}{{"f32", audit.F32Limits}, {"bf16", audit.BF16Limits}} {
		fmt.Fprintf(&b, "| %s, %.2g %% |", limit.name, 100*limit.of.Error)
		for _, beta := range []float64{0.9, 0.99, 0.999} {
			j := Injection{Chunk: 4096, TopK: 8, Beta: beta, Usual: limit.of.Error}
			fmt.Fprintf(&b, " %s |", percent(j.Steady(2000, rand.New(rand.NewPCG(3, 4)))))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestTablesOfGains compares the tables of a cheat's gain with README.md.
func TestTablesOfGains(t *testing.T) {
	keep(t, readme, "worths", worths())
	keep(t, readme, "steady", steady())
	keep(t, readme, "freed", freed())
}
