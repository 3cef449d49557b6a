package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/signals"
)

// errFound means that there were findings, which are already printed.
var errFound = errors.New("problems were found")

// options are the flags of the command line.
type options struct {
	setup
	seed    uint64
	minutes float64
	row     string
	list    bool
	brief   bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the random `number` generator that draws the rows")
	flag.Float64Var(&o.minutes, "minutes", 0, "start no row after this many `minutes`; 0: run all rows")
	flag.StringVar(&o.row, "row", "", "run one `row` only: its number, or levels such as backend=chain,lag=2")
	flag.BoolVar(&o.list, "list", false, "print the rows instead of running them")
	flag.BoolVar(&o.brief, "brief", false, "run half of the rounds of each row")
	flag.BoolVar(&o.keep, "keep", false, "keep the output of the processes even if no problem is found")
	flag.StringVar(&o.bin, "bin", "build/bin", "`folder` of psyche and psyche-client")
	flag.StringVar(&o.out, "out", "build/matrix", "`folder` for the output of the processes")
	flag.StringVar(&o.evaluations, "evaluations", "learn/eval/testdata/data", "`folder` of the tasks' data sets")
	flag.Parse()
	ctx, stop := signals.Context()
	defer stop()
	if err := o.do(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// do runs the requested rows and prints a line about each.
func (o options) do(ctx context.Context, out io.Writer) error {
	rows, err := o.rows()
	if err != nil {
		return err
	}
	if o.list {
		for _, r := range rows {
			fmt.Fprintf(out, "row %2d of %d  %s\n", r.number, len(rows), r)
		}
		return nil
	}
	o.root = cmp.Or(o.root, ".")
	for _, path := range []*string{&o.bin, &o.out, &o.evaluations} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	began, done, failed := time.Now(), 0, 0
	for _, r := range rows {
		if o.minutes > 0 && time.Since(began).Minutes() >= o.minutes {
			break
		}
		r.brief = o.brief
		outcome, err := o.run(ctx, r)
		if err != nil {
			return fmt.Errorf("row %d: %w", r.number, err)
		}
		done++
		if len(outcome.findings) > 0 {
			failed++
		}
		outcome.print(out)
	}
	fmt.Fprintf(out, "%d of %d rows of seed %d in %.1f minutes, problems found in %d rows\n", done, len(rows), o.seed, time.Since(began).Minutes(), failed)
	if failed > 0 {
		return errFound
	}
	return nil
}

// rows returns the requested rows.
func (o options) rows() ([]row, error) {
	if strings.Contains(o.row, "=") {
		r, err := parseRow(o.row)
		return []row{r}, err
	}
	rows, err := rowsOf(o.seed)
	if err != nil || o.row == "" {
		return rows, err
	}
	number, err := strconv.Atoi(o.row)
	if err != nil || number < 1 || number > len(rows) {
		return nil, fmt.Errorf("-row is %q, want 1 to %d, or levels such as backend=chain,lag=2", o.row, len(rows))
	}
	return rows[number-1 : number], nil
}

// print writes a line about a row, and one for each finding.
func (o outcome) print(out io.Writer) {
	verdict := "ok"
	switch {
	case len(o.findings) > 0:
		verdict = "FOUND"
	case o.row.refused != "":
		verdict = "refused"
	case o.skipped != "":
		verdict = "skipped"
	}
	fmt.Fprintf(out, "row %2d  %4.0f s  %-7s  %s", o.row.number, o.seconds, verdict, o.row)
	if o.batches > 0 {
		fmt.Fprintf(out, "  (%d batches", o.batches)
		for _, reason := range slices.Sorted(maps.Keys(o.lost)) {
			fmt.Fprintf(out, ", %d lost: %s", o.lost[reason], reason)
		}
		if o.retried > 0 {
			fmt.Fprintf(out, ", %d sequences trained again", o.retried)
		}
		fmt.Fprintf(out, "; longest: %.0f s in %s of step %d)", o.longest.took.Seconds(), o.longest.name, o.longest.step)
	}
	if o.skipped != "" {
		fmt.Fprintf(out, "  (%s)", o.skipped)
	}
	fmt.Fprintln(out)
	for _, f := range o.findings {
		fmt.Fprintf(out, "        %s: %s\n", f.kind, strings.TrimSpace(f.text))
	}
	if len(o.findings) > 0 {
		again := "go run ./proof/matrix"
		if o.row.brief {
			again += " -brief"
		}
		fmt.Fprintf(out, "        logs: %s\n        again: %s -row %s\n", o.dir, again, o.row)
	}
}
