package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	smallModel    = "proof/bench/parity/model-small.json"
	usualMomentum = 0.99
)

// printAttacked compares the runs whose members share a replica with the honest run of the same
// number of honest members.
func printAttacked(groups []*group) {
	groups = slices.DeleteFunc(slices.Clone(groups), func(g *group) bool { return !g.runs[0].settings.OneReplica || g.tune })
	if len(groups) == 0 {
		return
	}
	slices.SortStableFunc(groups, func(a, b *group) int {
		x, y := a.runs[0].settings, b.runs[0].settings
		one := map[bool]int{true: 0, false: 1}
		return cmp.Or(one[x.OneBit]-one[y.OneBit], cmp.Compare(x.Model, y.Model), cmp.Compare(y.Momentum, x.Momentum), cmp.Compare(x.Tokens, y.Tokens), cmp.Compare(x.Attackers, y.Attackers), cmp.Compare(y.Clients, x.Clients), cmp.Compare(x.Attack, y.Attack), x.Verification-y.Verification, cmp.Compare(x.TopK, y.TopK))
	})
	fmt.Print("| members | attack | audits | seeds | test loss | worse than the honest members alone | ejected: median, latest step |\n|---|---|---|---|---|---|---|\n")
	for _, g := range groups {
		fmt.Println(g.attackedRow(groups))
	}
	fmt.Println()
}

// alone returns the group of runs with the honest members alone and the same settings. Members with
// audits may send more coefficients, because they send less often. They are compared with members
// without audits that do not.
func (g *group) alone(groups []*group) *group {
	want := g.runs[0].settings
	want.Clients -= want.Attackers
	want.Attackers, want.Attack, want.Verification = 0, "", 0
	if g.runs[0].settings.Attackers == 0 { // an honest run has the same baseline as attacked runs
		for _, other := range groups {
			if s := other.runs[0].settings; s.Attackers > 0 {
				want.Clients = s.Clients - s.Attackers
			}
		}
	}
	for _, other := range groups {
		s := other.runs[0].settings
		s.Name, s.Seed = want.Name, want.Seed
		if g.runs[0].settings.Verification > 0 {
			s.TopK = want.TopK
		}
		if s == want {
			return other
		}
	}
	return nil
}

func (g *group) attackedRow(groups []*group) string {
	s := g.runs[0].settings
	attack, audits, worse := "none", "none", "–"
	members := fmt.Sprint(s.Clients)
	if !s.OneBit {
		members += ", values"
	}
	if s.Model == smallModel {
		members += ", small model"
	}
	if s.Momentum > 0 && s.Momentum != usualMomentum {
		members += fmt.Sprintf(", β %v", s.Momentum)
	}
	if millions := s.Tokens / 1_000_000; millions > 1 {
		members += fmt.Sprintf(", %d M tokens", millions)
	}
	if s.Attackers > 0 {
		attack = fmt.Sprintf("%d × %s", s.Attackers, attacks[s.Attack].Name)
	}
	if s.Verification > 0 {
		audits = fmt.Sprintf("%d %%, k = %d", s.Verification, s.TopK)
	}
	if alone := g.alone(groups); alone != nil && alone != g {
		worse = g.against(alone)
	}
	var seeds, losses []string
	for i, loss := range g.losses() {
		seeds, losses = append(seeds, fmt.Sprint(g.runs[i].settings.Seed)), append(losses, fmt.Sprintf("%.3f", loss))
	}
	return fmt.Sprintf("| %s | %s | %s | %s | **%.3f** (%s) | %s | %s |", members, attack, audits, strings.Join(seeds, ", "),
		mean(g.losses()), strings.Join(losses, ", "), worse, g.ejections())
}

// against describes how much worse the runs are than the runs in alone with the same seeds.
func (g *group) against(alone *group) string {
	var own, others []float64
	var each []string
	for i, run := range g.runs {
		at := slices.IndexFunc(alone.runs, func(f finished) bool { return f.settings.Seed == run.settings.Seed })
		if at < 0 {
			continue
		}
		own, others = append(own, g.losses()[i]), append(others, alone.losses()[at])
		each = append(each, fmt.Sprintf("%.1f", 100*(g.losses()[i]/alone.losses()[at]-1)))
	}
	if len(own) == 0 {
		return "–"
	}
	return fmt.Sprintf("**%+.1f %%** (%s)", 100*(mean(own)/mean(others)-1), strings.Join(each, ", "))
}

// ejections describes how long ejected members took part.
func (g *group) ejections() string {
	var steps []int
	wanted := 0
	for _, run := range g.runs {
		wanted += int(run.settings.Attackers)
		for _, e := range run.ejected {
			steps = append(steps, int(e.Gone)-1)
		}
	}
	if len(steps) == 0 {
		return "–"
	}
	slices.Sort(steps)
	return fmt.Sprintf("%d of %d: %d, %d", len(steps), wanted, steps[(len(steps)-1)/2], steps[len(steps)-1])
}
