package sim

import (
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// TestLinks runs a few seeds with honest members on links from 0.25 Mbit/s: alone, and with
// malicious members that accuse them, send them requests, and collude.
func TestLinks(t *testing.T) {
	for _, test := range []struct {
		faults  scenario.Faults
		clients int
		seeds   uint64
	}{
		{scenario.NoFaults, 12, 2}, {scenario.Slanderer, 12, 3}, {scenario.Slanderer | scenario.Hog, 12, 4},
		{scenario.Coalition | scenario.Hog, 16, 2}, {scenario.AllFaults, 12, 3},
	} {
		t.Run(test.faults.String(), func(t *testing.T) {
			t.Parallel()
			summary, err := RunSeeds(t.Context(), SeedOptions{
				First: 1, Last: test.seeds, Options: Options{Clients: test.clients, Rounds: 10, Faults: test.faults, Links: true},
			})
			if err != nil {
				t.Fatal(err)
			}
			report(t, summary.Failure)
		})
	}
}

// TestMostTrainersOnSlowLinks runs seeds in which members on slow links are two thirds of a round's few
// trainers. These members have the fastest machines, but the other members must not lose their seats.
func TestMostTrainersOnSlowLinks(t *testing.T) {
	for _, test := range []struct {
		seed   uint64
		shares bool
	}{
		{7086, false}, {51, true}, {369, true}, {532, true}, {593, true}, {7011, true},
	} {
		o := Options{Seed: test.seed, Clients: 8, Rounds: 10, Faults: scenario.AllFaults, Links: true, Shares: test.shares}
		if r := Run(o); r.Violation != nil {
			t.Errorf("seed %d: %v\n%s", o.Seed, r.Violation, o.Command())
		}
	}
}

// TestWithholdersAreEjected has one member that withholds its openings in each way, and logs the
// number of rounds until it is ejected.
func TestWithholdersAreEjected(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates many runs")
	}
	for manner := range scenario.Manners {
		seeds, rounds := uint64(2), 80
		if manner == scenario.ServesOne {
			seeds, rounds = 1, 40 // a member passes the opening on: no jury convicts the trainer, and the run takes all rounds
		}
		t.Run(manner.String(), func(t *testing.T) {
			t.Parallel()
			ejected, steps, seconds := 0, uint32(0), 0.0
			for seed := uint64(1); seed <= seeds; seed++ {
				step, took, out := ejectionOf(t, Options{Seed: seed, Clients: 12, Rounds: rounds, Faults: scenario.Withhold, Links: true}, manner)
				if out {
					ejected, steps, seconds = ejected+1, steps+step, seconds+took
				}
			}
			if ejected > 0 {
				t.Logf("%d of %d ejected, on average after %d rounds, %.0f s after an opening was requested first",
					ejected, seeds, int(steps)/ejected, seconds/float64(ejected))
			}
			switch {
			case manner == scenario.ServesOne:
				t.Logf("%d of %d ejected: the member that has the opening passes it on", ejected, seeds)
			case 4*ejected < 3*int(seeds):
				t.Errorf("%d of %d ejected", ejected, seeds)
			}
		})
	}
}

// ejectionOf runs until the member that withholds is ejected. It returns the step of the ejection,
// and the time since the first unanswered request.
func ejectionOf(t *testing.T, o Options, manner scenario.Manner) (step uint32, seconds float64, ejected bool) {
	t.Helper()
	w := newWorld(o)
	defer w.workers.Close()
	w.plan.Links.Manner, w.plan.Links.Byzantine = manner, 1
	guilty := -1
	for i, m := range w.machines {
		switch {
		case !m.HasRole(scenario.Withhold):
			m.Roles = 0
		case guilty < 0:
			guilty = i
		default:
			m.Roles = 0
		}
	}
	w.begin()
	for w.events.Len() > 0 && w.violation == nil && !w.over && w.host.State().RunState != coordinator.Finished {
		at, call := w.events.Take()
		w.now = at
		call()
		for _, e := range w.host.State().Authority.Ejections {
			if e.Client != coordinator.ClientID(w.machines[guilty].ID) {
				t.Errorf("seed %d: %s is ejected", o.Seed, w.cast.Of(e.Client).Name())
			}
			first := w.now
			for _, at := range w.machines[guilty].process.court.firstRequest {
				first = min(first, at)
			}
			return w.host.State().Progress.Step, float64(w.now-first) / float64(second), true
		}
	}
	if v := w.violation; v != nil {
		t.Errorf("seed %d: %v", o.Seed, v)
	}
	return 0, 0, false
}
