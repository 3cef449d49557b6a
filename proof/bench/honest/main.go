package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"

	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/proof/testbed"
)

func main() {
	rows := flag.String("file", "proof/bench/honest/rows.toml", "`file` with the rows")
	only := flag.String("rows", "", "run only rows whose name matches this regular `expression`")
	bin := flag.String("bin", "build/bin", "`folder` of psyche and psyche-client")
	out := flag.String("out", "build/honest", "`folder` for the output of the processes")
	state := flag.String("state", "proof/bench/distro.toml", "base settings of the rows")
	results := flag.String("json", "", "also write all results to this `file`")
	control := flag.Bool("control", true, "also run each row without audits")
	rounds := flag.Int("rounds", 0, "rounds of each run, overriding the rows")
	flag.Parse()
	ctx, stop := signals.Context()
	defer stop()
	err := run(ctx, setup{bin: *bin, out: *out, state: *state}, *rows, *only, *control, *rounds, *results)
	if err != nil {
		fmt.Fprintln(os.Stderr, "honest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, u setup, file, only string, control bool, rounds int, results string) error {
	rows, err := readRows(file)
	if err != nil {
		return err
	}
	chosen, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	if err := os.MkdirAll(u.out, 0o755); err != nil {
		return err
	}
	var outcomes []outcome
	for _, r := range rows {
		if !chosen.MatchString(r.Name) {
			continue
		}
		if rounds > 0 {
			r.Rounds = rounds
		}
		audits := []int{r.Audits}
		if control {
			audits = append(audits, 0)
		}
		for _, percent := range audits {
			o, err := u.measure(ctx, r, percent)
			if errors.Is(err, testbed.ErrNoLinks) {
				fmt.Fprintf(os.Stderr, "%s is skipped: %v\n", r.Name, err)
				continue
			}
			if err != nil {
				return errors.Join(err, printTable(os.Stdout, outcomes))
			}
			outcomes = append(outcomes, o)
			if err := printTable(os.Stderr, []outcome{o}); err != nil {
				return err
			}
		}
	}
	if results != "" {
		text, err := json.MarshalIndent(outcomes, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(results, text, 0o644); err != nil {
			return err
		}
	}
	return printTable(os.Stdout, outcomes)
}
