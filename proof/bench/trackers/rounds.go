package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// measured is the result of a run.
type measured struct {
	row      string
	rounds   []float64 // durations of the rounds between two other rounds of an epoch
	digests  []string  // of the clients' final models
	requests int64     // received by the fake service
}

// readRun reads the files of a testnet.
func readRun(dir string) (measured, error) {
	var m measured
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		return m, err
	}
	var summary struct {
		Finished bool
		Clients  []struct{ Digest string }
	}
	if err := json.Unmarshal(text, &summary); err != nil {
		return m, fmt.Errorf("%s: summary.json: %w", dir, err)
	}
	if !summary.Finished {
		return m, fmt.Errorf("%s: the run did not finish", dir)
	}
	for _, c := range summary.Clients {
		m.digests = append(m.digests, c.Digest)
	}
	var states []event.Event
	for e, err := range event.Read(filepath.Join(dir, "server", "events.jsonl")) {
		if err != nil {
			return m, err
		}
		if _, ok := e.Body.(event.State); ok {
			states = append(states, e)
		}
	}
	if m.rounds = roundsOf(states); len(m.rounds) == 0 {
		return m, fmt.Errorf("%s: no round lies between two other rounds", dir)
	}
	return m, nil
}

// roundsOf returns the durations of rounds between two other rounds of their epoch.
func roundsOf(states []event.Event) (seconds []float64) {
	type start struct {
		at          time.Time
		epoch, step uint32
	}
	var starts []start
	for _, e := range states {
		s := e.Body.(event.State)
		if s.RunState != "RoundTrain" || len(starts) > 0 && starts[len(starts)-1].step == s.Step {
			continue
		}
		starts = append(starts, start{e.Time, s.Epoch, s.Step})
	}
	for i := 1; i+1 < len(starts); i++ {
		if starts[i-1].epoch == starts[i].epoch && starts[i].epoch == starts[i+1].epoch {
			seconds = append(seconds, starts[i+1].at.Sub(starts[i].at).Seconds())
		}
	}
	return seconds
}

// same checks that all clients of a run have the same model.
func (m measured) same() error {
	for _, d := range m.digests {
		if d == "" || d != m.digests[0] {
			return fmt.Errorf("%s: the clients' models differ: %v", m.row, m.digests)
		}
	}
	if len(m.digests) == 0 {
		return errors.New("no client holds a model")
	}
	return nil
}

// median returns the median of at least one number.
func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// comparison compares a row with the first one, block by block.
type comparison struct {
	row     string
	medians []float64 // of its rounds, one per block
	ratios  []float64 // to the first row's medians
}

// compare compares blocks of runs, in the order of the rows.
func compare(blocks [][]measured) []comparison {
	if len(blocks) == 0 {
		return nil
	}
	all := make([]comparison, len(blocks[0]))
	for _, block := range blocks {
		first := median(block[0].rounds)
		for i, m := range block {
			own := median(m.rounds)
			all[i].row = m.row
			all[i].medians = append(all[i].medians, own)
			all[i].ratios = append(all[i].ratios, own/first)
		}
	}
	return all
}

// print writes the table.
func print(to io.Writer, all []comparison) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "row\tmedian round ms, a block each\tto the first row, median\tleast\tmost")
	for _, c := range all {
		text := ""
		for _, m := range c.medians {
			text += fmt.Sprintf(" %.0f", 1000*m)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%+.2f %%\t%+.2f %%\t%+.2f %%\n", c.row, text, percent(median(c.ratios)), percent(slices.Min(c.ratios)), percent(slices.Max(c.ratios)))
	}
	return w.Flush()
}

func percent(ratio float64) float64 { return 100 * (ratio - 1) }
