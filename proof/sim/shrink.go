package sim

import (
	"context"
	"fmt"
)

// Shrink searches for a smaller run that violates the same assertion: with fewer kinds of faults,
// fewer clients or fewer rounds. It also tries other seeds, because the number of clients changes
// the meaning of a seed. It takes a step whenever the violation persists, until no step does or ctx
// ends. The result has a trace.
func Shrink(ctx context.Context, f Failure) (Failure, Result) {
	for smaller := true; smaller && ctx.Err() == nil; {
		smaller = false
		for _, o := range f.smaller() {
			if ctx.Err() != nil {
				break
			}
			if r := Run(o); r.Violation != nil && r.Violation.Assertion == f.Violation.Assertion {
				f, smaller = Failure{o, r.Violation}, true
				break
			}
		}
	}
	o := f.Options
	o.Trace = true
	return f, Run(o)
}

// seedsTried is the number of seeds tried with a smaller number of clients or rounds.
const seedsTried = 20

// smaller lists the runs that are one step smaller, the smallest first.
func (f Failure) smaller() []Options {
	var list []Options
	o := f.Options
	for _, size := range [][2]int{
		{o.Clients / 4, o.Rounds}, {o.Clients / 2, o.Rounds}, {o.Clients - 1, o.Rounds},
		{o.Clients, o.Rounds / 2}, {o.Clients, o.Rounds - 1},
	} {
		if size[0] < 2 || size[1] < 1 || size == [2]int{o.Clients, o.Rounds} {
			continue
		}
		next := o
		next.Clients, next.Rounds = size[0], size[1]
		list = append(list, next)
		for seed := range uint64(seedsTried) {
			next.Seed = seed + 1
			list = append(list, next)
		}
	}
	for _, kind := range o.Faults.Each() {
		next := o
		next.Faults &^= kind
		list = append(list, next)
	}
	return list
}

// Command returns the command line that repeats a run with its trace.
func (o Options) Command() string {
	switches := ""
	if o.Links {
		switches += " --links"
	}
	if o.Shares {
		switches += " --shares"
	}
	if o.Retries {
		switches += " --retries"
	}
	return fmt.Sprintf("psyche sim --seeds %d..%d --clients %d --rounds %d --faults %s%s --trace",
		o.Seed, o.Seed, o.Clients, o.Rounds, o.Faults, switches)
}
