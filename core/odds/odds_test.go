package odds

import (
	"flag"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/trust.md and README.md")

// TestAtLeast compares probabilities with independently computed values.
func TestAtLeast(t *testing.T) {
	tests := []struct {
		least, members, faulty, witnesses int
		want                              *big.Rat
	}{
		{0, 10, 3, 4, big.NewRat(1, 1)},
		{1, 3, 1, 1, big.NewRat(1, 3)},
		{2, 22, 2, 3, big.NewRat(20, 1540)}, // C(2,2)·C(20,1) of C(22,3)
		{3, 10, 3, 3, big.NewRat(1, 120)},
		{4, 10, 3, 4, new(big.Rat)},
		{2, 4, 3, 3, big.NewRat(1, 1)}, // only one of 4 members is honest
	}
	for _, test := range tests {
		if got := atLeast(test.least, test.members, test.faulty, test.witnesses); got.Cmp(test.want) != 0 {
			t.Errorf("at least %d of %d witnesses, %d of %d members are Byzantine: %s, want %s", test.least, test.witnesses, test.faulty, test.members, got, test.want)
		}
	}
}

// TestAtLeastAgainstDraws compares probabilities with randomly drawn committees.
func TestAtLeastAgainstDraws(t *testing.T) {
	const members, faulty, witnesses, draws = 40, 12, 32, 20_000
	r := rand.New(rand.NewPCG(1, 2))
	h := Of(members, faulty, witnesses)
	blocked := 0
	for range draws {
		elected := 0
		for _, member := range r.Perm(members)[:witnesses] {
			if member < faulty {
				elected++
			}
		}
		if elected > witnesses-h.Quorum {
			blocked++
		}
	}
	want, _ := h.Blocks.Float64()
	if got := float64(blocked) / draws; math.Abs(got-want) > 5*math.Sqrt(want*(1-want)/draws) {
		t.Errorf("%d of %d rounds were blocked, want a share of %.4f", blocked, draws, want)
	}
}

func TestEver(t *testing.T) {
	if got := Ever(big.NewRat(1, 2), 2); math.Abs(got-0.75) > 1e-12 {
		t.Errorf("two rounds with probability 1/2: %v, want 0.75", got)
	}
	if got := Ever(big.NewRat(1, 1_000_000_000_000), 10_000); math.Abs(got-1e-8) > 1e-12 {
		t.Errorf("10,000 rounds with probability 10⁻¹²: %v, want 10⁻⁸", got)
	}
	if got := Ever(new(big.Rat), 10_000); got != 0 {
		t.Errorf("10,000 rounds with probability 0: %v, want 0", got)
	}
}

// odds returns the table of captured rounds for committees of at least fewest witnesses. README.md
// contains all of them with coalitions of several sizes, docs/trust.md only the largest coalitions.
func odds(coalitions func(members int) []int, fewest int) string {
	var b strings.Builder
	b.WriteString("| members | witnesses | coalition | blocks a round | captures a round | ever in 10,000 |\n|---|---|---|---|---|---|\n")
	for _, members := range []int{4, 16, 64, 256} {
		for _, witnesses := range []int{1, 3, 8, 32} {
			if witnesses < fewest || witnesses > members {
				continue
			}
			for _, faulty := range coalitions(members) {
				h := Of(members, faulty, witnesses)
				fmt.Fprintf(&b, "| %d | %d | %d | %s | %s | %s |\n", members, witnesses, faulty, show(h.Blocks), show(h.Captures), percent(Ever(h.Captures, 10_000)))
			}
		}
	}
	return b.String()
}

// faultyOf returns a tenth, a fifth, and the largest number below a third of the members, without
// repetitions.
func faultyOf(members int) []int {
	var faulty []int
	for _, n := range []int{members / 10, members / 5, MostFaulty(members)} {
		if n > 0 && (len(faulty) == 0 || faulty[len(faulty)-1] != n) {
			faulty = append(faulty, n)
		}
	}
	return faulty
}

func show(p *big.Rat) string {
	f, _ := p.Float64()
	return percent(f)
}

func percent(p float64) string {
	switch {
	case p == 0:
		return "never"
	case p >= 0.9995:
		return "100 %"
	case p >= 0.99:
		return fmt.Sprintf("%.1f %%", 100*p)
	case p >= 0.001:
		return fmt.Sprintf("%.2g %%", 100*p)
	}
	return fmt.Sprintf("%.1e", p)
}

// most returns the size of the largest coalition below a third of the members.
func most(members int) []int { return []int{MostFaulty(members)} }

// TestTables compares the tables of captured rounds with docs/trust.md and README.md.
func TestTables(t *testing.T) {
	keep(t, trust, "odds", odds(most, 3))
	keep(t, readme, "odds", odds(faultyOf, 1))
}
