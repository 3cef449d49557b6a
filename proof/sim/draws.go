package sim

import (
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// draws implements env.Draws for all clients of a run. It computes each answer once. The cache keys
// contain everything that an answer depends on, so a client with a different view of a round gets
// the answer for its view.
type draws struct {
	assignments map[assignmentsKey][]assign.Assignment
	elected     map[electedKey][]bool
}

type assignmentsKey struct {
	batchSeed, position uint64
	members             int
	batchSize           uint32
	percent             uint8
	levels              [coordinator.MaxClients]uint8
	warming             coordinator.MemberSet
	retries             bool
}

type electedKey struct {
	seed    uint64
	members int
	nodes   uint16
}

func newDraws() draws {
	return draws{make(map[assignmentsKey][]assign.Assignment), make(map[electedKey][]bool)}
}

// Assignments implements env.Draws.
func (d *draws) Assignments(r *coordinator.Round, c coordinator.Config) []assign.Assignment {
	key := assignmentsKey{r.BatchSeed, r.Position, len(r.Members), r.BatchSize, c.VerificationPercent, r.Levels, r.Warming, c.RetryLost}
	known, ok := d.assignments[key]
	if !ok {
		known = r.Assignments(c)
		d.assignments[key] = known
	}
	return known
}

// Elected implements env.Draws.
func (d *draws) Elected(r *coordinator.Round, c coordinator.Config, member int) bool {
	key := electedKey{r.Seed, len(r.Members), c.WitnessNodes}
	known, ok := d.elected[key]
	if !ok {
		known = make([]bool, len(r.Members))
		for _, i := range r.ElectedWitnesses(c) {
			known[i] = true
		}
		d.elected[key] = known
	}
	return member >= 0 && member < len(known) && known[member]
}
