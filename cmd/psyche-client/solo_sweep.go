package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/record/event"
)

// Limits of a sweep.
const (
	maxSwept     = 3  // flags
	maxTrainings = 64 // combinations
)

// swept is a flag of --sweep with its values.
type swept struct {
	flag   string
	values []string
}

// notSwept are flags that apply to a whole sweep, or that each training sets for itself.
var notSwept = []string{"sweep", "save", "events-dir", "steps", "held-out"}

// parseSweep parses the KEY=VALUE,VALUE of each --sweep.
func parseSweep(texts []string, flags []*kong.Flag) (all []swept, err error) {
	trainings := 1
	for _, text := range texts {
		key, list, found := strings.Cut(text, "=")
		key = strings.ReplaceAll(strings.TrimPrefix(key, "--"), "_", "-")
		at := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == key || slices.Contains(f.Aliases, key) })
		if !found || at < 0 || slices.Contains(notSwept, flags[at].Name) {
			return nil, usageError{fmt.Errorf("--sweep %s: want a flag of this command and its values, as in --sweep lr=1e-3,3e-4", text)}
		}
		s := swept{flags[at].Name, strings.Split(list, ",")}
		if slices.ContainsFunc(all, func(other swept) bool { return other.flag == s.flag }) {
			return nil, usageError{fmt.Errorf("--sweep names --%s twice", s.flag)}
		}
		for i, value := range s.values {
			if value == "" || strings.ContainsAny(value, `/\`) || slices.Contains(s.values[:i], value) {
				return nil, usageError{fmt.Errorf("--sweep %s: a value is empty, repeated, or a path", text)}
			}
		}
		all = append(all, s)
		trainings *= len(s.values)
		if len(all) > maxSwept || trainings > maxTrainings {
			return nil, usageError{fmt.Errorf("--sweep requests more than %d flags or %d trainings", maxSwept, maxTrainings)}
		}
	}
	return all, nil
}

// combinations returns a value of each flag for every training. The last flag changes fastest.
func combinations(all []swept) [][]string {
	made := [][]string{nil}
	for _, s := range all {
		var next [][]string
		for _, before := range made {
			for _, value := range s.values {
				next = append(next, append(slices.Clone(before), value))
			}
		}
		made = next
	}
	return made
}

// outcome is the result of one training of a sweep.
type outcome struct {
	values  []string
	step    uint32
	loss    float64 // of the last step; NaN: none
	heldOut float64 // NaN: not measured
	seconds float64 // of all steps
	tokens  int
	failed  bool
}

// sweep trains every combination, as if its command line had been typed, and prints a table.
func (c *soloCommand) sweep(ctx context.Context, t terminal, line *kong.Context) error {
	all, err := parseSweep(c.Sweep, line.Selected().Flags)
	if err != nil {
		return err
	}
	if c.Save == "" || c.EventsDir != "" {
		return usageError{errors.New("--sweep needs --save DIR, in which each training gets a folder and a folder for its event log; omit --events-dir")}
	}
	made := combinations(all)
	names, lines := make([]string, len(made)), make([][]string, len(made))
	for i, values := range made {
		var settings []string
		for at, value := range values {
			settings = append(settings, all[at].flag+"="+value)
		}
		names[i], lines[i] = strings.Join(settings, "_"), withoutSweep(line.Args)
		for _, setting := range append(settings, c.ownPlaces(names[i])...) {
			lines[i] = append(lines[i], "--"+setting)
		}
		if err := readable(ctx, lines[i], all, t); err != nil { // a wrong value must not come after an hour
			return usageError{fmt.Errorf("--sweep %s: %w", strings.Join(settings, " "), err)}
		}
	}
	var outcomes []outcome
	for i, values := range made {
		name := names[i]
		_, _ = fmt.Fprintf(t.Out, "== %s\n", name)
		code := run(ctx, lines[i], t)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		o := readOutcome(filepath.Join(filepath.Join(c.Save, name)+eventsBeside, eventsFile), code != 0)
		o.values = values
		outcomes = append(outcomes, o)
	}
	return printSweep(t, all, outcomes)
}

// readable checks a command line of solo. All swept flags must have an effect.
func readable(ctx context.Context, arguments []string, all []swept, t terminal) error {
	read := &commands{}
	parser, err := newParser(ctx, read, t)
	if err != nil {
		return err
	}
	line, err := parser.Parse(arguments)
	if err != nil {
		return err
	}
	if err := read.Solo.check(line); err != nil {
		return err
	}
	for _, idle := range read.Solo.idle(line) {
		if idle.given && slices.ContainsFunc(all, func(s swept) bool { return "--"+s.flag == idle.name }) {
			return fmt.Errorf("%s has no effect: %s", idle.name, idle.why)
		}
	}
	return nil
}

// ownPlaces returns the flags with the output paths of a training.
func (c *soloCommand) ownPlaces(name string) []string {
	places := []string{"save=" + filepath.Join(c.Save, name)}
	if c.WandbProject+c.WandbRun+c.WandbGroup+c.WandbEntity != "" {
		places = append(places, "wandb-run="+strings.TrimSpace(c.WandbRun+" "+name))
	}
	if c.TensorboardDir != "" {
		places = append(places, "tensorboard-dir="+filepath.Join(c.TensorboardDir, name))
	}
	if c.MetricsFile != "" {
		ending := filepath.Ext(c.MetricsFile)
		places = append(places, "metrics-file="+strings.TrimSuffix(c.MetricsFile, ending)+"_"+name+ending)
	}
	return places
}

// withoutSweep returns the arguments of a command line without --sweep.
func withoutSweep(arguments []string) (left []string) {
	for i := 0; i < len(arguments); i++ {
		switch {
		case arguments[i] == "--sweep":
			i++
		case !strings.HasPrefix(arguments[i], "--sweep="):
			left = append(left, arguments[i])
		}
	}
	return left
}

// readOutcome reads the event log of a training.
func readOutcome(log string, failed bool) outcome {
	o := outcome{loss: math.NaN(), heldOut: math.NaN(), failed: failed}
	for e, err := range event.Read(log) {
		if err != nil {
			o.failed = true
			break
		}
		switch body := e.Body.(type) {
		case event.Trained:
			o.step, o.loss = body.Step, float64(body.Loss)
			o.seconds += body.Seconds
			o.tokens += body.Tokens
		case event.Evaluated:
			if loss, measured := body.Scores[lossTask]; body.Task == lossTask && measured {
				o.heldOut = loss
			}
		}
	}
	return o
}

// printSweep prints a table of trainings, the best first: with the lowest held-out loss or, if that
// was not measured, the lowest loss of the last step.
func printSweep(t terminal, all []swept, outcomes []outcome) error {
	order := func(o outcome) float64 {
		switch {
		case o.failed || math.IsNaN(o.loss):
			return math.Inf(1)
		case !math.IsNaN(o.heldOut):
			return o.heldOut
		}
		return o.loss
	}
	slices.SortStableFunc(outcomes, func(a, b outcome) int { return cmp.Compare(order(a), order(b)) })
	table := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	for _, s := range all {
		_, _ = fmt.Fprintf(table, "%s\t", s.flag)
	}
	_, _ = fmt.Fprintln(table, "step\tloss\theld-out loss\ttokens/s\tseconds\t")
	failures := 0
	for _, o := range outcomes {
		heldOut, note := "-", ""
		if !math.IsNaN(o.heldOut) {
			heldOut = fmt.Sprintf("%.6f", o.heldOut)
		}
		if o.failed {
			failures++
			note = "failed"
		}
		_, _ = fmt.Fprintf(table, "%s\t%d\t%.6f\t%s\t%.0f\t%.1f\t%s\n", strings.Join(o.values, "\t"), o.step, o.loss, heldOut, float64(o.tokens)/max(o.seconds, 1e-9), o.seconds, note)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if failures > 0 {
		return fmt.Errorf("%d of %d trainings failed; see their messages above", failures, len(outcomes))
	}
	return nil
}
