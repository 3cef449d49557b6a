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

// SeedOptions of many runs.
type SeedOptions struct {
	First, Last uint64 // both included
	Options            // of every run; Seed and Trace are set here
	Parallel    int    // runs at once; 0: as many as there are cores
	// OnRun is called after every run, one call at a time, but not after RunSeeds has returned; nil: not.
	OnRun func(seed uint64, r Result)
}

// Summary is the outcome of many runs.
type Summary struct {
	Runs    uint64
	Rounds  uint64
	Events  uint64
	Virtual time.Duration
	Elapsed time.Duration
	Failure *Failure // of the lowest seed that broke an assertion; nil: none did
}

// Failure is a run that broke an assertion.
type Failure struct {
	Options   Options // Faults are those that happened
	Violation *check.Violation
}

// RunSeeds runs every seed, each in one goroutine, until all are done, one breaks an
// assertion, or ctx ends, whose cause it returns; runs that are in progress then do not count. Seeds below a failing one are finished,
// so that the failure does not depend on how fast the others are.
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
	case <-ctx.Done(): // a run of many members takes seconds, and cannot be interrupted
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
