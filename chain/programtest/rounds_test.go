package programtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
)

// fullRound is a round of 256 members that ends while as many lists as possible are full. Half of the results
// are lost, and lost sequences wait.
type fullRound struct {
	name      string
	sequences uint32
	percent   uint8
	shares    bool
	proofs    int // of witnesses
	leavers   int // members that leave in this round
	ending    int // trials that end; the tick draws the juries of the others
	last      bool
}

var fullRounds = []fullRound{
	{name: "equal shares", sequences: 512, proofs: 32, ending: 7},
	{name: "equal shares, no sequence for one member", sequences: 255, proofs: 32, ending: 7},
	{name: "equal shares, 20 % audit, fewer sequences than members", sequences: 204, percent: 20, proofs: 32, ending: 7},
	{name: "equal shares, 11 % audit, fewer sequences than members, silent witnesses", sequences: 226, percent: 11, proofs: 22, ending: 7},
	{name: "equal shares, 20 % audit, 8 juries drawn", sequences: 204, percent: 20, proofs: 32},
	{name: "equal shares, 20 % audit, last round", sequences: 204, percent: 20, proofs: 32, ending: 8, last: true},
	{name: "by speed, 20 % audit", sequences: 512, percent: 20, shares: true, proofs: 32, ending: 7},
	{name: "by speed, 16 % audit, fewer sequences than members, silent witnesses", sequences: 200, percent: 16, shares: true, proofs: 22, ending: 7},
	{name: "by speed, 16 % audit, half of the members leave", sequences: 200, percent: 16, shares: true, proofs: 32, leavers: 128, ending: 7},
	{name: "by speed, 20 % audit, half of the members leave, last round", sequences: 200, percent: 20, shares: true, proofs: 32, leavers: 128, ending: 8, last: true},
}

// TestUnitsOfRounds records the costs of the dearest ends of rounds found.
func TestUnitsOfRounds(t *testing.T) {
	if testing.Short() || *programFile != "" {
		t.Skip("applies to the program in the repository, and is slow with the race detector")
	}
	var table strings.Builder
	table.WriteString("| end of a round of 256 members with lost sequences | compute units |\n|---|---:|\n")
	for _, f := range fullRounds {
		taken := f.units(t)
		fmt.Fprintf(&table, "| %s | %d |\n", f.name, taken)
		if taken > shareUnitLimit {
			t.Errorf("%s: %d units, want at most %d", f.name, taken, shareUnitLimit)
		}
	}
	golden.Compare(t, "units-rounds.md", table.String())
}

// units returns the cost of the round's last tick.
func (f fullRound) units(t *testing.T) uint64 {
	t.Helper()
	d, u := newDeployed(loadProgram(t)), units{}
	c := &crowd{r: newPair(d), now: 100 * second}
	config := crowdConfig
	config.VerificationPercent, config.SharesBySpeed, config.RetryLost, config.RoundsPerEpoch = f.percent, f.shares, true, 20
	config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = f.sequences, f.sequences
	if f.last {
		config.RoundsPerEpoch = 8
	}
	genesis := coordinator.Genesis{RunID: "rounds", Host: clientID(100_000), Config: config, Model: crowdModel}
	if _, err := c.r.genesis(genesis); err != nil {
		t.Fatal(err)
	}
	c.fill()
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(3*second, coordinator.Warmup)
	for i := range coordinator.MaxClients {
		c.must(clientID(i), coordinator.Ready{})
	}
	c.tick(second, coordinator.RoundTrain)
	for range 7 {
		f.play(c)
		c.tick(5*second, coordinator.RoundTrain)
	}
	f.play(c)
	c.change(f.fill)
	if got := len(c.r.s.Lost); c.err != nil || got < coordinator.MaxLost/2 {
		t.Fatal(f.name, c.err, got)
	}
	d.note = u.note
	next := coordinator.RoundTrain
	if f.last {
		next = coordinator.Cooldown
	}
	c.tick(60*second, next)
	if c.err != nil {
		t.Fatal(f.name, c.err)
	}
	return u["TICK RoundWitness to "+next.String()]
}

// play plays a round whose witnesses hold half of the results.
func (f fullRound) play(c *crowd) {
	if c.err != nil {
		return
	}
	if f.shares {
		c.offer(c.r.s.CurrentRound().Height)
	}
	r := c.r.s.CurrentRound()
	proof := coordinator.WitnessRound{Step: r.Step}
	for witness, member := range r.ElectedWitnesses(c.r.s.Config)[:f.proofs] {
		proof.Participants = f.filter(r, witness)
		c.must(r.Members[member], proof)
	}
	c.tick(50*second, coordinator.RoundWitness)
}

// filter returns the filter of a witness. All witnesses but one hold the results of the even members, and one witness too few
// for a quorum holds the results of the others. So almost all bits of all filters matter.
func (f fullRound) filter(r *coordinator.Round, witness int) (filter bloom.Filter) {
	for member, id := range r.Members {
		lacking := 1
		if f.proofs == int(r.WitnessesNeeded) {
			lacking = 0
		}
		if member%2 == 1 {
			lacking = f.proofs - int(r.WitnessesNeeded) + 1
		}
		if (member+witness)%f.proofs >= lacking {
			filter.Add(r.Seed, id[:])
		}
	}
	return filter
}

// fill makes members leave, fills lists of clients, and opens trials.
func (f fullRound) fill(s *coordinator.State) {
	exited := s.Epoch.Exited
	crowdOut(s)
	if f.leavers > 0 {
		s.Epoch.Exited = exited
		for i := range f.leavers {
			s.Epoch.Clients[len(s.Epoch.Clients)-1-i*len(s.Epoch.Clients)/f.leavers].State = coordinator.Withdrawn
		}
	}
	openTrials(s, f.ending)
}
