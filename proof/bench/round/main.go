package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/proof/testbed"
)

type options struct {
	rowsFile, only string
	state, bin     string
	out, json      string
	common         map[string]any
}

func main() {
	o := options{common: map[string]any{}}
	flag.StringVar(&o.rowsFile, "file", "proof/bench/round/rows.toml", "`file` with the rows")
	flag.StringVar(&o.only, "rows", "", "run only rows whose name matches this regular `expression`")
	flag.StringVar(&o.state, "state", "proof/bench/distro.toml", "base settings of the rows")
	flag.StringVar(&o.bin, "bin", "build/bin", "`folder` of psyche and psyche-client")
	flag.StringVar(&o.out, "out", "build/round", "`folder` for the output of the processes")
	flag.StringVar(&o.json, "json", "", "also write all results to this `file`")
	flag.Func("set", "`KEY=VALUE` in the state.toml of every row, such as config.round_witness_time=1; may be repeated", func(text string) error {
		key, value, err := parseSetting(text)
		o.common[key] = value
		return err
	})
	flag.Parse()
	ctx, stop := signals.Context()
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "round:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	rows, err := readRows(o.rowsFile)
	if err != nil {
		return err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := testbed.Quickstart(ctx, o.bin); err != nil {
		return err
	}
	fmt.Printf("%d clients on %d CPUs (%s), BLAS kernels %s; rounds between two others of an epoch, medians over rounds and clients.\n\n",
		clientCount, runtime.NumCPU(), runtime.GOARCH, blasKernels(ctx, o.bin))
	summaries, err := measureAll(ctx, o, rows, only)
	if len(summaries) > 0 {
		err = errors.Join(err, printTables(os.Stdout, summaries), writeJSON(o.json, summaries))
	}
	return err
}

// blasKernels returns the kernels that the clients' BLAS chose, which have the greatest effect on
// the speed of training.
func blasKernels(ctx context.Context, bin string) string {
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "psyche-client"), "doctor").Output()
	if err != nil {
		return "not known"
	}
	for line := range strings.Lines(string(out)) {
		if kernels, found := strings.CutPrefix(line, "BLAS kernels"); found {
			return strings.TrimSpace(kernels)
		}
	}
	return "not known"
}

// measureAll measures the rows one after another. After an error it returns the results so far.
func measureAll(ctx context.Context, o options, rows []row, only *regexp.Regexp) ([]summary, error) {
	u := setup{bin: o.bin, state: o.state, out: o.out, common: o.common}
	var summaries []summary
	perSequence := 0.0 // seconds, of the first row: rows with the same length have the same batch
	for _, r := range rows {
		if !only.MatchString(r.Name) {
			continue
		}
		if r.TrainSeconds > 0 {
			if perSequence == 0 {
				s, err := u.measure(ctx, row{Name: "calibration", Rounds: 4, Batch: 8 * clientCount})
				if err != nil {
					return summaries, err
				}
				perSequence = s.PerSequence
			}
			r.Batch = sequencesFor(r.TrainSeconds, perSequence, clientCount)
		}
		fmt.Fprintf(os.Stderr, "%s: batches of %d\n", r.Name, r.Batch)
		s, err := u.measure(ctx, r)
		switch {
		case errors.Is(err, testbed.ErrNoLinks):
			s = summary{Row: r.Name, Skipped: err.Error()}
		case err != nil:
			return summaries, fmt.Errorf("row %q: %w", r.Name, err)
		case perSequence == 0:
			perSequence = s.PerSequence
		}
		summaries = append(summaries, s)
	}
	return summaries, nil
}

// writeJSON writes all results to a file, if path is not empty.
func writeJSON(path string, summaries []summary) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(summaries, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}
