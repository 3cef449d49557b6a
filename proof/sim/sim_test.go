package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// TestSeeds runs a few seeds with each set of faults. `make sim` runs a thousand.
func TestSeeds(t *testing.T) {
	for _, test := range []struct {
		faults  scenario.Faults
		clients int
		seeds   uint64
	}{
		{scenario.NoFaults, 8, 3}, {scenario.AllFaults, 8, 8}, {scenario.AllFaults, 24, 1}, {scenario.AllFaults, 2, 10}, {scenario.NoFaults, 64, 1},
		{scenario.HiddenResult | scenario.LyingWitness, 16, 8}, // each is harmless without the other
		{scenario.HonestFaults, 8, 12}, {scenario.HonestFaults, 24, 1}, {scenario.ByzantineInAudits, 12, 5},
	} {
		t.Run(fmt.Sprintf("%v-%d", test.faults, test.clients), func(t *testing.T) {
			t.Parallel()
			summary, err := RunSeeds(t.Context(), SeedOptions{
				First: 1, Last: test.seeds, Options: Options{Clients: test.clients, Rounds: 4, Faults: test.faults},
			})
			if err != nil {
				t.Fatal(err)
			}
			report(t, summary.Failure)
			if summary.Runs != test.seeds && summary.Failure == nil {
				t.Errorf("%d runs of %d", summary.Runs, test.seeds)
			}
		})
	}
	for _, kind := range scenario.AllFaults.Each() {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			summary, err := RunSeeds(t.Context(), SeedOptions{
				First: 1, Last: 3, Options: Options{Clients: 7, Rounds: 4, Faults: kind},
			})
			if err != nil {
				t.Fatal(err)
			}
			report(t, summary.Failure)
		})
	}
}

// TestShares runs a few seeds in which members offer speeds. The members of some runs are honest.
func TestShares(t *testing.T) {
	for _, test := range []struct {
		faults  scenario.Faults
		clients int
		seeds   uint64
	}{
		{scenario.NoFaults, 8, 2}, {scenario.AllFaults, 8, 3}, {scenario.HonestFaults, 12, 2}, {scenario.LyingWitness | scenario.SilentTrainer, 12, 3},
		{scenario.Coalition, 16, 2}, {scenario.Starve | scenario.Crash, 12, 2},
	} {
		t.Run(fmt.Sprintf("%v-%d", test.faults, test.clients), func(t *testing.T) {
			t.Parallel()
			summary, err := RunSeeds(t.Context(), SeedOptions{
				First: 1, Last: test.seeds, Options: Options{Clients: test.clients, Rounds: 12, Faults: test.faults, Shares: true},
			})
			if err != nil {
				t.Fatal(err)
			}
			report(t, summary.Failure)
		})
	}
}

// TestRetries runs a few seeds of runs that train lost sequences again.
func TestRetries(t *testing.T) {
	for _, test := range []struct {
		faults  scenario.Faults
		clients int
		seeds   uint64
		shares  bool
	}{
		{scenario.NoFaults, 8, 2, false}, {scenario.AllFaults, 8, 3, false}, {scenario.HonestFaults, 12, 2, true},
		{scenario.LyingWitness | scenario.SilentTrainer, 12, 3, true}, {scenario.Starve | scenario.Crash, 12, 2, false},
	} {
		t.Run(fmt.Sprintf("%v-%d", test.faults, test.clients), func(t *testing.T) {
			t.Parallel()
			summary, err := RunSeeds(t.Context(), SeedOptions{
				First: 1, Last: test.seeds, Options: Options{Clients: test.clients, Rounds: 12, Faults: test.faults, Shares: test.shares, Retries: true},
			})
			if err != nil {
				t.Fatal(err)
			}
			report(t, summary.Failure)
		})
	}
}

func report(t *testing.T, f *Failure) {
	t.Helper()
	if f != nil {
		t.Errorf("seed %d: %v\n%s", f.Options.Seed, f.Violation, f.Options.Command())
	}
}

// TestCheatsAreFound has trainers that send results that an audit stops, and trainers that refuse
// all openings. Juries must eject some trainers of both kinds, in short runs.
func TestCheatsAreFound(t *testing.T) {
	t.Parallel()
	convicted := make(map[coordinator.Fault]int)
	for seed := uint64(1); seed <= 30; seed++ {
		w := newWorld(Options{Seed: seed, Clients: 12, Rounds: 16, Faults: scenario.CheatingTrainer | scenario.Silent})
		w.begin()
		w.loop()
		if w.violation != nil {
			t.Errorf("seed %d: %v", seed, w.violation)
		}
		for fault, count := range w.host.checker.Convicted {
			convicted[fault] += count
		}
		w.workers.Close()
	}
	t.Logf("ejected: %v", convicted)
	if convicted[coordinator.FaultResult] < 4 || convicted[coordinator.FaultSilent] < 1 {
		t.Errorf("ejected: %v", convicted)
	}
}

// TestSameSeedSameRun repeats runs with different numbers of cores and with other concurrent runs,
// with and without a trace.
func TestSameSeedSameRun(t *testing.T) {
	const seeds = 4
	options := Options{Clients: 10, Rounds: 4, Faults: scenario.AllFaults}
	want := make(map[uint64]uint64)
	for seed := uint64(1); seed <= seeds; seed++ {
		options.Seed = seed
		want[seed] = Run(options).Hash
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, cores := range []int{1, 4} {
		runtime.GOMAXPROCS(cores)
		got := make(chan [2]uint64, seeds)
		summary, err := RunSeeds(t.Context(), SeedOptions{
			First: 1, Last: seeds, Options: options, Parallel: 4,
			OnRun: func(seed uint64, r Result) { got <- [2]uint64{seed, r.Hash} },
		})
		if err != nil {
			t.Fatal(err)
		}
		if report(t, summary.Failure); summary.Runs != seeds {
			t.Fatalf("%d runs of %d", summary.Runs, seeds)
		}
		for range seeds {
			if g := <-got; g[1] != want[g[0]] {
				t.Errorf("%d cores: seed %d has hash %x, before %x", cores, g[0], g[1], want[g[0]])
			}
		}
	}
	distinct := make(map[uint64]bool)
	for seed, hash := range want {
		distinct[hash] = true
		options.Seed, options.Trace = seed, true
		if r := Run(options); r.Hash != hash || len(r.Trace) == 0 {
			t.Errorf("seed %d has a different hash with a trace of %d lines", seed, len(r.Trace))
		}
	}
	if len(distinct) != seeds {
		t.Errorf("%d seeds make %d different runs", seeds, len(distinct))
	}
}

func TestShrinkFindsSmallerRun(t *testing.T) {
	o := Options{Seed: 1, Clients: 12, Rounds: 4, Faults: scenario.AllFaults, rules: dataIndexBy(2)()}
	r := Run(o)
	if r.Violation == nil {
		t.Fatal("the mutation was not caught")
	}
	o.Faults = r.Faults
	small, again := Shrink(t.Context(), Failure{o, r.Violation})
	if again.Violation == nil || again.Violation.Assertion != r.Violation.Assertion {
		t.Fatalf("the smaller run violates %v", again.Violation)
	}
	if small.Options.Clients > 3 || small.Options.Faults != scenario.NoFaults || small.Options.Rounds > 1 {
		t.Errorf("not small: %s", small.Options.Command())
	}
	if len(again.Trace) == 0 {
		t.Error("no trace")
	}
}

func TestRunSeedsStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	_, err := RunSeeds(ctx, SeedOptions{
		First: 1, Last: 1 << 40, Options: Options{Clients: 3, Rounds: 1}, Parallel: 1,
		OnRun: func(uint64, Result) {
			if runs++; runs == 2 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) || runs != 2 {
		t.Errorf("%d runs, %v", runs, err)
	}
}

// TestLastStepAppliedInTheNextEpoch has a client that was disconnected during Cooldown and that
// applies the epoch's last step in the next epoch, which is correct.
func TestLastStepAppliedInTheNextEpoch(t *testing.T) {
	faults, err := scenario.ParseFaults("drop,duplicate,partition,slow-disk,invalid-result")
	if err != nil {
		t.Fatal(err)
	}
	if report := Run(Options{Seed: 449, Clients: 64, Rounds: 4, Faults: faults}); report.Violation != nil {
		t.Fatal(report.Violation)
	}
}
