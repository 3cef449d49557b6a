package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/proof/bench/rawlog"
)

type tableCommand struct {
	Logs string `default:"proof/bench/parity/logs" type:"path" help:"Folder of the logs."`
}

// finished is the content of a complete log.
type finished struct {
	settings runCommand
	last     record
	bytes    float64 // mean of a client's result
	ejected  []ejected
}

// group is runs that differ only in their seed.
type group struct {
	runs []finished // by seed
	tune bool
}

// Run prints the comparison, by the test loss, and the tuning, by the validation loss.
func (c *tableCommand) Run() error {
	groups, err := c.groups()
	if err != nil {
		return err
	}
	for _, tune := range []bool{false, true} {
		loss, seeds := "test loss", "seeds"
		if tune {
			loss, seeds = "validation loss", "seed"
		}
		fmt.Printf("| run | settings | tokens | batch | %s | %s | worse than AdamW | bytes per client and step |\n|---|---|---|---|---|---|---|---|\n", seeds, loss)
		for _, g := range groups {
			if g.tune == tune && !g.runs[0].settings.OneReplica {
				fmt.Println(g.row(groups))
			}
		}
		fmt.Println()
	}
	printAttacked(groups)
	return nil
}

// groups reads all complete logs.
func (c *tableCommand) groups() ([]*group, error) {
	paths, err := filepath.Glob(filepath.Join(c.Logs, "*"+rawlog.Suffix))
	if err != nil {
		return nil, err
	}
	found := map[runCommand]*group{}
	var groups []*group
	for _, path := range paths {
		f, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		key := f.settings
		key.Name, key.Seed = "", 0
		if isTuning(f) {
			key.Seed = f.settings.Seed
		}
		if found[key] == nil {
			found[key] = &group{tune: isTuning(f)}
			groups = append(groups, found[key])
		}
		found[key].runs = append(found[key].runs, f)
	}
	for _, g := range groups {
		slices.SortFunc(g.runs, func(a, b finished) int { return cmp.Compare(a.settings.Seed, b.settings.Seed) })
	}
	slices.SortStableFunc(groups, func(a, b *group) int {
		x, y := a.runs[0].settings, b.runs[0].settings
		return cmp.Or(cmp.Compare(x.Optimizer, y.Optimizer), cmp.Compare(y.Tokens, x.Tokens), -cmp.Compare(len(a.runs), len(b.runs)), cmp.Compare(x.Name, y.Name))
	})
	return groups, nil
}

func isTuning(f finished) bool { return strings.HasPrefix(f.settings.Name, "tune-") }

func read(path string) (f finished, err error) {
	file, err := rawlog.Open(path)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	decoder := json.NewDecoder(file)
	if err := decoder.Decode(&f.settings); err != nil {
		return f, err
	}
	previous := uint32(0)
	for {
		var next record
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return f, err
		}
		f.last = next
		f.ejected = append(f.ejected, next.Ejected...)
		f.bytes += next.Bytes * float64(next.Step-previous)
		previous = next.Step
	}
	if f.last.Step == 0 {
		return f, errors.New("the log has no steps")
	}
	f.bytes /= float64(f.last.Step)
	return f, nil
}

// losses returns the losses for comparing the runs.
func (g *group) losses() []float64 {
	var losses []float64
	for _, run := range g.runs {
		if g.tune {
			losses = append(losses, run.last.Validation)
		} else {
			losses = append(losses, run.last.Test)
		}
	}
	return losses
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// baseline returns the mean loss of the best AdamW with the same seeds, number of tokens and
// sequences, with any batch size; NaN if there is none.
func (g *group) baseline(groups []*group) float64 {
	s, best := g.runs[0].settings, math.NaN()
	for _, other := range groups {
		o := other.runs[0].settings
		if o.Optimizer != "adamw" || other.tune != g.tune || o.Tokens != s.Tokens || o.SeqLen != s.SeqLen || o.Model != s.Model || o.Compute != s.Compute {
			continue
		}
		var losses []float64
		for i, loss := range other.losses() {
			if slices.ContainsFunc(g.runs, func(f finished) bool { return f.settings.Seed == other.runs[i].settings.Seed }) {
				losses = append(losses, loss)
			}
		}
		if len(losses) == len(g.runs) && !(mean(losses) >= best) {
			best = mean(losses)
		}
	}
	return best
}

// row returns a line of a table.
func (g *group) row(groups []*group) string {
	s := g.runs[0].settings
	var seeds, losses []string
	for i, loss := range g.losses() {
		seeds, losses = append(seeds, fmt.Sprint(g.runs[i].settings.Seed)), append(losses, fmt.Sprintf("%.4f", loss))
	}
	loss := losses[0]
	if len(losses) > 1 {
		loss = fmt.Sprintf("**%.4f** (%s)", mean(g.losses()), strings.Join(losses, ", "))
	}
	gap, bytes := "", "–"
	if base := g.baseline(groups); !math.IsNaN(base) {
		gap = fmt.Sprintf("%+.1f %%", 100*(mean(g.losses())/base-1))
	}
	if s.Optimizer != "adamw" {
		bytes = fmt.Sprintf("%.0f", g.runs[0].bytes)
	}
	return fmt.Sprintf("| %s | %s | %.2f M | %d × %d | %s | %s | %s | %s |",
		s.Name, s.describe(), float64(s.Tokens)/1e6, s.Batch, s.SeqLen, strings.Join(seeds, ", "), loss, gap, bytes)
}

// describe lists the relevant settings.
func (c *runCommand) describe() string {
	parts := []string{fmt.Sprintf("lr %g", c.LR)}
	if name := strings.TrimSuffix(filepath.Base(c.Model), ".json"); name != "model" {
		parts = append(parts, name)
	}
	if c.Compute == "bf16" {
		parts = append(parts, c.Compute)
	}
	switch c.Optimizer {
	case "adamw":
		parts = append(parts, fmt.Sprintf("β %g, %g", c.Beta1, c.Beta2))
	case "local":
		parts = append(parts, fmt.Sprintf("H %d", c.InnerSteps), fmt.Sprintf("k %d", c.TopK), fmt.Sprintf("%d bits", c.ValueBits),
			fmt.Sprintf("outer %g", c.OuterLR), fmt.Sprintf("error decay %g", c.ErrorDecay))
		if c.Muon {
			parts = append(parts, "Muon")
		}
		if c.OuterBeta > 0 {
			parts = append(parts, fmt.Sprintf("outer momentum %g", c.OuterBeta))
		}
		if c.ApplyLag > 1 {
			parts = append(parts, fmt.Sprintf("lag %d", c.ApplyLag))
		}
	default:
		parts = append(parts, fmt.Sprintf("k %d", c.TopK), fmt.Sprintf("decay %g", c.Momentum))
		if !c.OneBit {
			parts = append(parts, "values")
		}
		if c.ApplyLag > 1 {
			parts = append(parts, fmt.Sprintf("lag %d", c.ApplyLag))
		}
		if c.Lookahead {
			parts = append(parts, "look-ahead")
		}
		if c.Clients != 3 {
			parts = append(parts, fmt.Sprintf("%d clients", c.Clients))
		}
	}
	if c.Decay > 0 {
		parts = append(parts, fmt.Sprintf("weight decay %g", c.Decay))
	}
	return strings.Join(parts, ", ")
}
