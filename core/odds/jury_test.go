package odds

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
)

func TestJuryOf(t *testing.T) {
	for _, test := range []struct{ members, coalition, size, needed int }{{4, 1, 2, 2}, {16, 5, 14, 8}, {42, 13, 40, 22}, {256, 85, 96, 53}} {
		j := JuryOf(test.members, test.coalition)
		if j.Size != test.size || j.Needed != test.needed || 20*j.Needed < 11*j.Size || 20*(j.Needed-1) >= 11*j.Size {
			t.Errorf("%d members: %d of %d, want %d of %d", test.members, j.Needed, j.Size, test.needed, test.size)
		}
	}
	for members := 4; members <= 111; members++ {
		j := JuryOf(members, MostFaulty(members))
		if j.Convicts.Sign() != 0 || j.Blocks.Sign() != 0 {
			t.Errorf("%d members, and all of them judge: a coalition of %d convicts or blocks", members, j.Coalition)
		}
		if members > 4 && j.Lax.Sign() != 0 {
			t.Errorf("%d members, and a tenth of the honest ones do not judge: a coalition of %d blocks", members, j.Coalition)
		}
	}
}

// TestJuriesAgainstDraws compares the odds with drawn juries in which a tenth of the honest members
// do not vote.
func TestJuriesAgainstDraws(t *testing.T) {
	const members, coalition, draws = 256, 85, 20_000
	r := rand.New(rand.NewPCG(5, 6))
	j := JuryOf(members, coalition)
	kept := 0
	for range draws {
		guilty := 0
		for _, member := range r.Perm(members - 2)[:j.Size] {
			if honest := member - (coalition - 1); honest >= 0 && honest >= 17 { // of 170 members
				guilty++
			}
		}
		if guilty < j.Needed {
			kept++
		}
	}
	want, _ := j.Lax.Float64()
	if got := float64(kept) / draws; math.Abs(got-want) > 5*math.Sqrt(want*(1-want)/draws) {
		t.Errorf("kept in %.4f of the trials, want %.4f", got, want)
	}
}

// TestAuditedAgainstDraws compares the odds with drawn verifiers and their audits in the rounds
// after a result.
func TestAuditedAgainstDraws(t *testing.T) {
	const members, percent, coalition, draws = 40, 30, 12, 3000
	r := rand.New(rand.NewPCG(3, 4))
	verifiers := assign.VerifierCount(members, percent)
	trainers := members - verifiers
	audited := 0
	for range draws {
		found := false
		for age := range keptRounds {
			for _, member := range r.Perm(members)[:verifiers] {
				rounds := keptRounds
				if r.IntN(2) == 0 {
					rounds = newestRounds
				}
				found = found || r.IntN(rounds*trainers) == age*trainers && member >= coalition
			}
		}
		if found {
			audited++
		}
	}
	want := Audited(members, percent, coalition)
	if got := float64(audited) / draws; math.Abs(got-want) > 5*math.Sqrt(want*(1-want)/draws) {
		t.Errorf("audited in %.3f of the rounds, want %.3f", got, want)
	}
	h, v := 1-coalition/float64(members), percent/100.0
	if near := 1 - math.Exp(-h*v/(1-v)); math.Abs(near-want) > 0.01 {
		t.Errorf("%.4f, want close to %.4f", want, near)
	}
}

// juries returns the table of juries of runs with at least fewest members. README.md contains
// coalitions of several sizes, docs/trust.md only the largest coalitions in runs in which they have
// a chance.
func juries(coalitions func(members int) []int, fewest int) string {
	var b strings.Builder
	b.WriteString("| members | coalition | jury | needed | ejects an honest member | keeps its own member in | if a tenth of the honest jurors cannot judge |\n|---|---|---|---|---|---|---|\n")
	for _, members := range []int{8, 32, 98, 128, 256} {
		if members < fewest {
			continue
		}
		for _, coalition := range coalitions(members) {
			j := JuryOf(members, coalition)
			fmt.Fprintf(&b, "| %d | %d | %d | %d | %s | %s | %s |\n", members, coalition, j.Size, j.Needed, show(j.Convicts), show(j.Blocks), show(j.Lax))
		}
	}
	return b.String()
}

// audits returns the table of README.md about the time until a cheat is audited.
func audits() string {
	var b strings.Builder
	b.WriteString("| members | `verification_percent` | do not train | results audited, no coalition | half of steady cheaters ejected within | 95 % within | audited, largest coalition | half within | 95 % within |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, members := range []int{8, 16, 64, 256} {
		for _, percentage := range []int{10, 20, 30} {
			verifiers := assign.VerifierCount(members, percentage)
			if verifiers == 0 {
				fmt.Fprintf(&b, "| %d | %d | 0 | never | – | – | never | – | – |\n", members, percentage)
				continue
			}
			coalition := MostFaulty(members)
			fmt.Fprintf(&b, "| %d | %d | %d | %s | %d rounds | %d | %s | %d | %d |\n", members, percentage, verifiers,
				percent(Audited(members, percentage, 0)), RoundsToEject(members, percentage, 0, 0.5), RoundsToEject(members, percentage, 0, 0.95),
				percent(Audited(members, percentage, coalition)), RoundsToEject(members, percentage, coalition, 0.5), RoundsToEject(members, percentage, coalition, 0.95))
		}
	}
	return b.String()
}

// briefAudits returns the short table of audits in docs/trust.md.
func briefAudits() string {
	var b strings.Builder
	b.WriteString("| members | `verification_percent` | results audited | 95 % of steady cheaters ejected within | audited, largest coalition | 95 % within |\n|---|---|---|---|---|---|\n")
	for _, members := range []int{8, 16, 256} {
		for _, percentage := range []int{10, 20, 30} {
			coalition := MostFaulty(members)
			if assign.VerifierCount(members, percentage) == 0 {
				fmt.Fprintf(&b, "| %d | %d | never | – | never | – |\n", members, percentage)
				continue
			}
			fmt.Fprintf(&b, "| %d | %d | %s | %d rounds | %s | %d |\n", members, percentage, percent(Audited(members, percentage, 0)),
				RoundsToEject(members, percentage, 0, 0.95), percent(Audited(members, percentage, coalition)), RoundsToEject(members, percentage, coalition, 0.95))
		}
	}
	return b.String()
}

// probations returns the table of README.md about newcomers that cheat from their first step.
func probations() string {
	var b strings.Builder
	b.WriteString("| members | `verification_percent` | ejected within 8 rounds, no coalition | 16 | 32 | 64 | 95 % within |\n|---|---|---|---|---|---|---|\n")
	for _, members := range []int{8, 16, 64, 256} {
		for _, percentage := range []int{10, 20, 30} {
			if assign.VerifierCount(members, percentage) == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %d | %d |", members, percentage)
			for _, rounds := range []int{8, 16, 32, 64} {
				fmt.Fprintf(&b, " %s |", percent(Ejected(members, percentage, 0, rounds)))
			}
			fmt.Fprintf(&b, " %d rounds |\n", RoundsToEject(members, percentage, 0, 0.95))
		}
	}
	return b.String()
}

// TestEjected simulates the rounds of a cheating member, with the trainers that package core/assign
// draws.
func TestEjected(t *testing.T) {
	const members, percentage, runs, rounds = 16, 20, 1500, 15
	r := rand.New(rand.NewPCG(7, 8))
	ejected := 0
	for range runs {
		var trained [][]int // trainers of each round
		found := false
		for range keptRounds {
			trained = append(trained, assign.Trainers(r.Uint64(), members, percentage))
		}
		for range rounds - roundsToEject {
			seed := r.Uint64()
			trained = append(trained, assign.Trainers(seed, members, percentage))
			for verifier := range members {
				if slices.Contains(trained[len(trained)-1], verifier) {
					continue
				}
				of := trained[len(trained)-1-r.IntN([]int{newestRounds, keptRounds}[r.IntN(2)])]
				found = found || verifier != 0 && of[r.IntN(len(of))] == 0
			}
		}
		if found {
			ejected++
		}
	}
	want := Ejected(members, percentage, 0, rounds)
	if got := float64(ejected) / runs; math.Abs(got-want) > 0.05 {
		t.Errorf("%.3f of the cheats are ejected within %d rounds, computed are %.3f", got, rounds, want)
	}
	if got := RoundsToEject(members, percentage, 0, want-1e-9); got != rounds {
		t.Errorf("%d rounds, want %d", got, rounds)
	}
	if got := RoundsToEject(8, 10, 0, 0.5); got != 0 {
		t.Errorf("without verifiers a cheat is ejected after %d rounds", got)
	}
}

// TestTablesOfAudits compares the tables of juries and audits with docs/trust.md and README.md.
func TestTablesOfAudits(t *testing.T) {
	keep(t, trust, "juries", juries(most, 112))
	keep(t, trust, "audits", briefAudits())
	keep(t, readme, "juries", juries(faultyOf, 0))
	keep(t, readme, "audits", audits())
	keep(t, readme, "probations", probations())
}

// pages contains the pages with tables.
const (
	trust  = "../../docs/trust.md"
	readme = "README.md"
)

// keep compares the table between a page's marks with the computed table, or writes it with
// -update.
func keep(t *testing.T, page, mark, want string) {
	t.Helper()
	begin, end := "<!-- "+mark+" -->\n", "<!-- end of "+mark+" -->\n"
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(b), begin)
	old, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no table between %q and %q", page, begin, end)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != want {
		t.Errorf("table %s of %s is outdated; run go test ./core/odds -update", mark, page)
	}
}
