package sim

import (
	"context"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// SeedOptions configure many runs.
type SeedOptions struct {
	First, Last uint64 // both included
	Options            // of every run; RunSeeds sets Seed and Trace
	Parallel    int    // concurrent runs; 0: the number of cores
	// OnRun, if not nil, is called after every run, one call at a time, but not after RunSeeds has
	// returned.
	OnRun func(seed uint64, r Result)
}

// Summary is the outcome of many runs.
type Summary struct {
	Runs    uint64
	Rounds  uint64
	Events  uint64
	Virtual time.Duration
	Elapsed time.Duration
	Failure *Failure // of the lowest seed that violates an assertion; nil: none
}

// Failure is a run that violates an assertion.
type Failure struct {
	Options   Options // Faults contains only kinds that happened
	Violation *check.Violation
}

// RunSeeds runs every seed, each in one goroutine, until all are done, a run violates an assertion,
// or ctx ends. If ctx ends, it returns the cause and ignores unfinished runs. It completes all
// seeds below a failing one, so that the reported failure does not depend on the speed of the runs.
func RunSeeds(ctx context.Context, o SeedOptions) (Summary, error) {
	parallel := o.Parallel
	if parallel <= 0 {
		parallel = runtime.GOMAXPROCS(0)
	}
	var next atomic.Uint64
	next.Store(o.First)
	var mu sync.Mutex
	var summary Summary
	var left bool // the caller has its summary
	begun := time.Now()
	var group sync.WaitGroup
	for range parallel {
		group.Go(func() {
			for ctx.Err() == nil {
				seed := next.Add(1) - 1
				if seed > o.Last || seed < o.First {
					return
				}
				mu.Lock()
				past := summary.Failure != nil && summary.Failure.Options.Seed < seed
				mu.Unlock()
				if past {
					return
				}
				run := o.Options
				run.Seed, run.Trace = seed, false
				r := Run(run)
				mu.Lock()
				if !left {
					summary.add(run, r)
					if o.OnRun != nil {
						o.OnRun(seed, r)
					}
				}
				mu.Unlock()
			}
		})
	}
	ended := make(chan struct{})
	go func() { group.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done(): // a large run takes seconds, and cannot be interrupted
	}
	mu.Lock()
	defer mu.Unlock()
	left = true
	summary.Elapsed = time.Since(begun)
	return summary, context.Cause(ctx)
}

func (s *Summary) add(o Options, r Result) {
	s.Runs++
	s.Rounds += uint64(r.Steps)
	s.Events += r.Events
	s.Virtual += r.Virtual
	if r.Violation != nil && (s.Failure == nil || o.Seed < s.Failure.Options.Seed) {
		if o.Faults != scenario.HonestFaults { // its runs have other configurations
			o.Faults = r.Faults
		}
		s.Failure = &Failure{o, r.Violation}
	}
}
