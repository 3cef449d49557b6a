package programtest

import (
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
)

// setLimit is the maximum cost of the beginning of an epoch, in compute units, when all lists of
// clients are full and all pending clients are drawn.
const setLimit = 165_000

// TestSets begins an epoch with the maximum number of pending, exited and departed clients. It
// checks that the cost stays below the limit that sets make possible.
func TestSets(t *testing.T) {
	d, u := newDeployed(loadProgram(t)), units{}
	r := newPair(d)
	c := &crowd{r: r, now: 100 * second}
	genesis := coordinator.Genesis{RunID: "sets", Host: clientID(100_000), Config: crowdConfig, Model: crowdModel, Progress: coordinator.Progress{Step: 8}}
	if _, err := r.genesis(genesis); err != nil {
		t.Fatal(err)
	}
	c.fill()
	c.tick(0, coordinator.WaitingForMembers)
	s, g := r.s.Clone(), newGenerator(1, 0)
	for i := range coordinator.MaxClients {
		exited := g.stranger(&s, i, coordinator.Withdrawn)
		exited.ProbationUntil = 1
		s.Epoch.Exited = append(s.Epoch.Exited, exited)
		s.Departed = append(s.Departed, g.stranger(&s, coordinator.MaxClients+i, coordinator.Withdrawn))
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if err := r.load(s); err != nil {
		t.Fatal(err)
	}
	d.note = u.note
	c.tick(3*second, coordinator.Warmup)
	if c.err != nil {
		t.Fatal(c.err)
	}
	for name, taken := range u {
		t.Logf("%8d units: %s", taken, name)
		if taken > setLimit {
			t.Errorf("%s takes %d units, want at most %d", name, taken, setLimit)
		}
	}
}
