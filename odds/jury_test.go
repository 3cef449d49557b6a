package odds

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/assign"
)

func TestJuryOf(t *testing.T) {
	for _, test := range []struct{ members, gang, size, quorum int }{{4, 1, 2, 2}, {16, 5, 14, 10}, {34, 11, 32, 22}, {256, 85, 32, 22}} {
		j := JuryOf(test.members, test.gang)
		if j.Size != test.size || j.Quorum != test.quorum {
			t.Errorf("%d members: %d of %d, want %d of %d", test.members, j.Quorum, j.Size, test.quorum, test.size)
		}
	}
	for members := 4; members <= 34; members++ {
		if j := JuryOf(members, MostLiars(members)); j.Convicts.Sign() != 0 || j.Blocks.Sign() != 0 {
			t.Errorf("%d members, all of whom judge: a gang of %d convicts or blocks", members, j.Gang)
		}
	}
}

// TestAuditedAgainstDraws draws verifiers and targets.
func TestAuditedAgainstDraws(t *testing.T) {
	const members, percent, gang, rounds = 40, 30, 12, 3000
	r := rand.New(rand.NewPCG(3, 4))
	verifiers := assign.VerifierCount(members, percent)
	trainers := members - verifiers
	audited := 0
	for range rounds {
		seed, target := r.Uint64(), r.IntN(trainers)
		for rank := range verifiers {
			// The trainer is of the gang itself, and audits nobody here: the others are drawn from 39.
			if assign.Target(seed, rank, verifiers, trainers) == target && r.IntN(members-1) >= gang {
				audited++
				break
			}
		}
	}
	want := Audited(members, percent, gang)
	if got := float64(audited) / rounds; math.Abs(got-want) > 5*math.Sqrt(want*(1-want)/rounds) {
		t.Errorf("audited in %.3f of the rounds, want %.3f", got, want)
	}
}

// juries is what docs/trust.md shows of juries.
func juries() string {
	var b strings.Builder
	b.WriteString("| members | gang | jury | needed | ejects an honest one it accuses | keeps one of its own in |\n|---|---|---|---|---|---|\n")
	for _, members := range []int{8, 16, 34, 40, 64, 128, 256} {
		for _, gang := range liarsOf(members) {
			j := JuryOf(members, gang)
			fmt.Fprintf(&b, "| %d | %d | %d | %d | %s | %s |\n", members, gang, j.Size, j.Quorum, show(j.Convicts), show(j.Blocks))
		}
	}
	return b.String()
}

// audits is what docs/trust.md shows of how soon who cheats is audited.
func audits() string {
	var b strings.Builder
	b.WriteString("| members | `verification_percent` | do not train | audited in a round, no gang | half of such cheats are audited after | 95 % after | with the largest gang |\n|---|---|---|---|---|---|---|\n")
	for _, members := range []int{8, 16, 64, 256} {
		for _, percentage := range []int{10, 20, 30} {
			verifiers := assign.VerifierCount(members, percentage)
			if verifiers == 0 {
				fmt.Fprintf(&b, "| %d | %d | 0 | never | – | – | – |\n", members, percentage)
				continue
			}
			p, worst := Audited(members, percentage, 0), Audited(members, percentage, MostLiars(members)-1)
			fmt.Fprintf(&b, "| %d | %d | %d | %s | %d rounds | %d rounds | %d, %d rounds |\n", members, percentage, verifiers, percent(p),
				within(p, 0.5), within(p, 0.95), within(worst, 0.5), within(worst, 0.95))
		}
	}
	return b.String()
}

// probations is what docs/trust.md shows of newcomers that cheat from their first step on.
func probations() string {
	var b strings.Builder
	b.WriteString("| members | `verification_percent` | ejected within 8 rounds, no gang | 16 | 32 | 64 | 95 % are within |\n|---|---|---|---|---|---|---|\n")
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

// TestEjected plays the rounds of a member that cheats, with the core's draws.
func TestEjected(t *testing.T) {
	const members, percentage, runs, rounds = 16, 20, 1500, 12
	ejected := 0
	for run := range uint64(runs) {
		for round := range uint64(rounds - roundsToEject) {
			seed := (run*rounds + round) * 0x9e3779b97f4a7c15
			trainers := assign.Trainers(seed, members, percentage)
			at := slices.Index(trainers, 0)
			next := seed + 0x9e3779b97f4a7c15
			verifiers := assign.Verifiers(next, members, percentage)
			found := false
			for rank, verifier := range verifiers {
				found = found || verifier != 0 && at >= 0 && assign.Target(next, rank, len(verifiers), len(trainers)) == at
			}
			if found {
				ejected++
				break
			}
		}
	}
	want := Ejected(members, percentage, 0, rounds)
	if got := float64(ejected) / runs; math.Abs(got-want) > 0.05 {
		t.Errorf("%.3f of the cheats are ejected within %d rounds, computed are %.3f", got, rounds, want)
	}
	if got := RoundsToEject(members, percentage, 0, want-1e-9); got != rounds {
		t.Errorf("%d rounds for what %d are enough for", got, rounds)
	}
	if got := RoundsToEject(8, 10, 0, 0.5); got != 0 {
		t.Errorf("without verifiers a cheat is ejected after %d rounds", got)
	}
}

// TestTablesOfAudits keeps these tables of docs/trust.md true.
func TestTablesOfAudits(t *testing.T) {
	keep(t, "<!-- juries -->\n", "<!-- end of juries -->\n", juries())
	keep(t, "<!-- probations -->\n", "<!-- end of probations -->\n", probations())
	keep(t, "<!-- audits -->\n", "<!-- end of audits -->\n", audits())
}

// keep compares a part of docs/trust.md with what it has to be, or writes it.
func keep(t *testing.T, begin, end, want string) {
	t.Helper()
	const path = "../docs/trust.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(b), begin)
	old, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no table between %q and %q", path, begin, end)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != want {
		t.Errorf("a table of %s is not what this package computes: run go test ./odds -update", path)
	}
}
