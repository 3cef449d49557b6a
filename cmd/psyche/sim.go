package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

type simulate struct {
	Seeds    string `default:"1..100" help:"Seeds to run, as A..B or A (${default})."`
	Clients  int    `default:"64" help:"Number of clients in every run, 2 to 256 (${default})."`
	Rounds   int    `default:"4" help:"Number of rounds with faults in every run; about the same number of rounds without faults follow (${default})."`
	Faults   string `default:"all" help:"Faults: all (chosen by the seed), honest (the same without dishonest members), none, or a comma-separated list of drop, delay, reorder, duplicate, partition, crash, host-crash, slow-disk, torn-write, clock-jump, starve, data-failure, lying-witness, silent-trainer, invalid-result, equivocation, false-accuser, hidden-result, gang (nearly a third of the members collude in every role), gang-host (the host colludes with them), cheating-trainer, silent, fleeing, slanderer; with --links also hog and withhold (${default})."`
	Links    bool   `help:"Simulate links with a bandwidth of 0.25 to 1,000 Mbit/s, and message sizes. With --faults all, the seed chooses which dishonest members accuse slow members and request their data."`
	Shares   bool   `help:"Simulate members that offer speeds, which determine the sizes of their batches."`
	Retries  bool   `help:"Simulate a run that trains sequences again if their results did not count."`
	Parallel int    `default:"0" help:"Number of concurrent runs; 0 means one per core (${default})."`
	Trace    bool   `help:"Print the events of every run."`
	NoShrink bool   `help:"Do not search for a smaller run that reproduces a violation."`
}

// gcPercent trades memory for speed, because a run needs little memory.
const gcPercent = 400

// errViolation means that a run broke an assertion.
var errViolation = errors.New("an assertion was violated")

// Run simulates runs and fails if a run breaks an assertion.
func (c simulate) Run(ctx context.Context, to console) error {
	first, last, err := parseSeeds(c.Seeds)
	if err != nil {
		return err
	}
	faults, err := scenario.ParseFaults(c.Faults)
	if err != nil {
		return usagef("--faults: %w", err)
	}
	if c.Clients < 2 || c.Clients > coordinator.MaxClients || c.Rounds < 1 || c.Rounds > 1000 {
		return usagef("--clients must be 2 to %d, and --rounds 1 to 1000", coordinator.MaxClients)
	}
	if c.Parallel < 0 {
		return usagef("--parallel is %d: want at least 1, or 0 for one per core", c.Parallel)
	}
	if !c.Links && faults&(scenario.Hog|scenario.Withhold) != 0 {
		return usagef("--faults: hog and withhold need --links")
	}
	debug.SetGCPercent(gcPercent)
	o := sim.Options{Clients: c.Clients, Rounds: c.Rounds, Faults: faults, Links: c.Links, Shares: c.Shares, Retries: c.Retries}
	if c.Trace {
		return c.trace(ctx, to, o, first, last)
	}
	var done, broken atomic.Uint64
	var shown atomic.Int64
	begun := time.Now()
	summary, err := sim.RunSeeds(ctx, sim.SeedOptions{
		First: first, Last: last, Options: o, Parallel: c.Parallel,
		OnRun: func(_ uint64, r sim.Result) {
			n := done.Add(1)
			if r.Violation != nil {
				broken.Add(1)
			}
			now, before := int64(time.Since(begun)), shown.Load()
			if now-before > int64(10*time.Second) && shown.CompareAndSwap(before, now) {
				_, _ = fmt.Fprintf(to.err, "%d of %d runs, %.2f seeds/s, %d violations\n", n, last-first+1, float64(n)/(float64(now)/1e9), broken.Load())
			}
		},
	})
	verdict := "0 violations"
	if summary.Failure != nil {
		verdict = "a violation"
	}
	seconds := max(summary.Elapsed.Seconds(), 1e-9)
	_, _ = fmt.Fprintf(to.out, "%d runs of %d clients, %d rounds, %s of virtual time in %s: %.2f seeds/s; %s\n",
		summary.Runs, c.Clients, summary.Rounds, summary.Virtual.Round(time.Second), summary.Elapsed.Round(time.Millisecond), float64(summary.Runs)/seconds, verdict)
	if summary.Failure != nil {
		return c.explain(ctx, to, *summary.Failure)
	}
	return err
}

// explain prints a failure and the smallest run found that reproduces it.
func (c simulate) explain(ctx context.Context, to console, f sim.Failure) error {
	_, _ = fmt.Fprintf(to.out, "\nseed %d: %v\nagain: %s\n", f.Options.Seed, f.Violation, f.Options.Command())
	if !c.NoShrink {
		small, r := sim.Shrink(ctx, f)
		_, _ = fmt.Fprintf(to.out, "\nsmallest run found: %d clients, %d rounds, faults %s, %d lines\n", small.Options.Clients, small.Options.Rounds, small.Options.Faults, len(r.Trace))
		for _, line := range r.Trace {
			_, _ = fmt.Fprintln(to.out, line)
		}
		_, _ = fmt.Fprintf(to.out, "\nagain: %s\n", small.Options.Command())
	}
	return fmt.Errorf("%w: seed %d: %s", errViolation, f.Options.Seed, f.Violation.Assertion)
}

// trace runs seeds one after another and prints the events of each.
func (c simulate) trace(ctx context.Context, to console, o sim.Options, first, last uint64) error {
	o.Trace = true
	for seed := first; seed <= last && ctx.Err() == nil; seed++ {
		o.Seed = seed
		r := sim.Run(o)
		for _, line := range r.Trace {
			_, _ = fmt.Fprintln(to.out, line)
		}
		_, _ = fmt.Fprintf(to.out, "seed %d: faults %s, %d rounds, %s, trace hash %016x\n", seed, r.Faults, r.Steps, r.Virtual, r.Hash)
		if r.Violation != nil {
			return fmt.Errorf("%w: seed %d: %w", errViolation, seed, r.Violation)
		}
	}
	return context.Cause(ctx)
}

// parseSeeds parses A..B or A.
func parseSeeds(text string) (first, last uint64, err error) {
	from, to, isRange := strings.Cut(text, "..")
	if !isRange {
		to = from
	}
	first, err = strconv.ParseUint(from, 10, 63)
	if err == nil {
		last, err = strconv.ParseUint(to, 10, 63)
	}
	if err != nil || last < first {
		return 0, 0, usagef("--seeds %q: want A..B with A not above B, or one number", text)
	}
	return first, last, nil
}
