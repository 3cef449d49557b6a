package sim

import (
	"context"
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

var (
	speedMembers = flag.Int("speeds.members", 7, "members of the runs of TestStrategies")
	speedRounds  = flag.Int("speeds.rounds", 26, "rounds of the runs of TestStrategies, TestEqualSpeeds and TestUtilisation")
	speedSeeds   = flag.Uint64("speeds.seeds", 1, "seeds of TestStrategies, TestEqualSpeeds and TestUtilisation")
	speedPart    = flag.String("speeds.coalition", "", "speeds of TestStrategies' coalition: fast or slow; empty: both")
)

const (
	tokensPerSequence = 64
	sequencesEach     = 128  // per member and round
	roundTime         = 20   // seconds of a round in which each member trains all the time
	noise             = 0.06 // standard deviation of the logarithm of a training's duration
	firstRounds       = 10   // not measured, because the run does not know the speeds yet
)

// field is a run whose machines have speeds. A coalition may follow a strategy. All other members behave like
// real clients.
type field struct {
	*strategy
	relative  []float64 // member i has number i mod len(relative) of these speeds
	clients   int
	rounds    int
	equal     bool                                  // without shares by speed
	coalition int                                   // number of members that follow the strategy
	slow      bool                                  // they are the slowest members, not the fastest
	slowed    func(member int, step uint32) float64 // factor of a member's speed; nil: 1

	speeds    []float64          // tokens per second, by member
	opened    map[uint32]int64   // start of each round
	withheld  map[[2]uint32]bool // member and round in which the coalition withheld a result
	measured  measured
	violation error
}

// measured are the sums over the rounds of a field, without the first rounds.
type measured struct {
	rounds            int
	took              int64      // nanoseconds
	all, work, theirs uint64     // sequences in rounds, counted, and counted of the coalition
	votes, theirVotes int        // of counted results
	late, away        []bool     // honest members that were slow, or lost their seats, by member; also in the first rounds
	sizes             [][]uint64 // of the batches of each round, by member; also in the first rounds
	missing           []int      // results that did not count, by member; also in the first rounds
}

// run simulates the field.
func (f *field) run(seed uint64) {
	if f.strategy == nil {
		f.strategy = &strategy{}
	}
	f.opened, f.withheld = make(map[uint32]int64), make(map[[2]uint32]bool)
	f.measured = measured{late: make([]bool, f.clients), away: make([]bool, f.clients), missing: make([]int, f.clients)}
	f.speeds = nil
	sum := 0.0
	for i := range f.clients {
		f.speeds = append(f.speeds, f.relative[i%len(f.relative)])
		sum += f.speeds[i]
	}
	for i := range f.speeds {
		f.speeds[i] *= float64(sequencesEach*f.clients*tokensPerSequence) / roundTime / sum
	}
	r := Run(Options{
		Seed: seed, Clients: f.clients, Rounds: f.rounds, Faults: scenario.NoFaults, Shares: !f.equal, Retries: true,
		rules: rules{setup: f.setup, moved: f.moved, machines: f, submits: f.submits},
	})
	f.violation = nil
	if r.Violation != nil {
		f.violation = fmt.Errorf("seed %d: %w", seed, r.Violation)
	}
}

// setup plans one epoch of long rounds, and appoints the coalition.
func (f *field) setup(w *world) {
	size := uint32(sequencesEach * f.clients)
	w.plan.Config = coordinator.Config{
		WarmupTime: 60_000, CooldownTime: 10_000, RoundsPerEpoch: uint32(f.rounds), TotalSteps: uint32(f.rounds),
		MaxRoundTrainTime: 600_000, RoundWitnessTime: 5000, WaitingForMembersExtraTime: 2000,
		InitMinClients: uint16(f.clients), MinClients: uint16(max(1, f.clients/2)),
		GlobalBatchSizeStart: size, GlobalBatchSizeEnd: size, SharesBySpeed: !f.equal, RetryLost: true,
	}
	w.plan.ApplyLag = 1
	order := slices.Clone(w.cast.Members)
	slices.SortStableFunc(order, func(a, b *cast.Member) int {
		if f.slow {
			a, b = b, a
		}
		return int(f.speeds[b.Index] - f.speeds[a.Index])
	})
	for _, m := range order[:f.coalition] {
		m.Roles = scenario.SilentTrainer // any role: with machines, it has no effect on a trainer
	}
}

// SeqLen implements machines.
func (*field) SeqLen() int { return tokensPerSequence }

// Takes implements machines.
func (f *field) Takes(m *machine, step uint32, sequences int) int64 {
	normal := -6.0
	for range 12 { // the sum is approximately normal
		normal += float64(m.random.Between(0, 1<<30)) / (1 << 30)
	}
	speed := f.speeds[m.Index] * math.Exp(noise*normal)
	if f.slowed != nil {
		speed *= f.slowed(m.Index, step)
	}
	return int64(float64(sequences*tokensPerSequence) / speed * float64(second))
}

// Delivers implements machines.
func (f *field) Delivers(ctx context.Context, p *process, step uint32) error {
	if f.delivers == nil || p.machine.Honest() {
		return nil
	}
	return f.delivers(ctx, f, p, step)
}

// submits changes the offers and the proofs of the coalition.
func (f *field) submits(p *process, a coordinator.Action) coordinator.Action {
	if p.machine.Honest() {
		return a
	}
	switch honest := a.(type) {
	case coordinator.Offer:
		if f.offers != nil {
			honest.Level = f.offered(p.machine)
		}
		return honest
	case coordinator.WitnessRound:
		if f.proves != nil {
			return f.proves(p, honest)
		}
	}
	return a
}

// level returns the true level of a machine.
func (f *field) level(m *machine) int { return int(math.Floor(8 * math.Log2(f.speeds[m.Index]))) }

// offered returns the level that a member of the coalition offers.
func (f *field) offered(m *machine) uint8 { return uint8(max(1, min(f.offers(f.level(m)), 255))) }

// insist makes the coalition's members offer their levels, also if their clients do not.
func (f *field) insist(h *host) {
	for _, m := range h.world.machines {
		seat, ok := h.State().Member(coordinator.ClientID(m.ID))
		if ok && m.process != nil && !m.Honest() && !seat.Offered && seat.Offer != f.offered(m) {
			m.process.sendAside(coordinator.Offer{Step: h.State().Progress.Step, Level: f.offered(m)})
		}
	}
}

// moved measures the round that has ended.
func (f *field) moved(h *host, before coordinator.RunState) {
	s, m := h.State(), &f.measured
	for _, c := range slices.Concat(s.Epoch.Clients, s.Epoch.Exited) {
		if member := h.world.cast.Of(c.ID); member.Honest() {
			m.late[member.Index] = m.late[member.Index] || c.Lateness == coordinator.Slow
			m.away[member.Index] = m.away[member.Index] || c.State == coordinator.Dropped
		}
	}
	if s.RunState != coordinator.RoundTrain {
		return
	}
	step := s.Progress.Step
	if f.opened[step] = h.world.now; before == coordinator.RoundWitness {
		f.count(h.world, s.RoundOfStep(step-1), s.Config)
	}
	if f.offers != nil {
		h.world.after(second/2, func() { f.insist(h) })
	}
}

// count adds a round that has ended.
func (f *field) count(w *world, round *coordinator.Round, config coordinator.Config) {
	m := &f.measured
	sum := measured{rounds: 1, took: f.opened[round.Step+1] - f.opened[round.Step]}
	sizes := make([]uint64, f.clients)
	for _, a := range round.Assignments(config) {
		id := round.Members[a.Member]
		member, size := w.cast.Of(id), a.Batch.Len()
		sizes[member.Index] = size
		sum.all += size
		if round.Score(id) < int(round.WitnessesNeeded) {
			m.missing[member.Index]++
			continue
		}
		sum.work += size
		sum.votes += int(a.Vote)
		if !member.Honest() {
			sum.theirs += size
			sum.theirVotes += int(a.Vote)
		}
	}
	m.sizes = append(m.sizes, sizes)
	if round.Step > firstRounds {
		m.add(&sum)
	}
}

// add adds other sums.
func (m *measured) add(o *measured) {
	m.rounds, m.took = m.rounds+o.rounds, m.took+o.took
	m.all, m.work, m.theirs = m.all+o.all, m.work+o.work, m.theirs+o.theirs
	m.votes, m.theirVotes = m.votes+o.votes, m.theirVotes+o.theirVotes
}

// share returns the coalition's share of the counted sequences and of the votes of counted results.
func (m *measured) share() (work, votes float64) {
	return float64(m.theirs) / float64(max(m.work, 1)), float64(m.theirVotes) / float64(max(m.votes, 1))
}

// lost returns the part of the sequences whose results did not count.
func (m *measured) lost() float64 { return 1 - float64(m.work)/float64(m.all) }

// seconds returns the mean duration of a round.
func (m *measured) seconds() float64 { return float64(m.took) / float64(second) / float64(m.rounds) }

// utilisation returns the counted work of the honest members, relative to the work that their machines can do
// in the time.
func (f *field) utilisation() float64 {
	speeds := slices.Sorted(slices.Values(f.speeds))
	if f.slow {
		slices.Reverse(speeds)
	}
	sum := 0.0
	for _, speed := range speeds[:f.clients-f.coalition] {
		sum += speed
	}
	m := &f.measured
	return float64((m.work-m.theirs)*tokensPerSequence) / (sum * float64(m.took) / float64(second))
}

// series are the runs of a field with some seeds.
type series struct {
	measured
	used       []float64 // utilisation of the honest members in each run
	late, away int       // honest members that were slow, or lost their seats, over all runs
}

// runSeries runs a field with each seed.
func runSeries(t *testing.T, f field) (s series) {
	t.Helper()
	for seed := uint64(1); seed <= *speedSeeds; seed++ {
		f.run(seed)
		if f.violation != nil {
			t.Error(f.violation)
		}
		s.add(&f.measured)
		s.used = append(s.used, f.utilisation())
		for i := range f.clients {
			if f.measured.late[i] {
				s.late++
			}
			if f.measured.away[i] {
				s.away++
			}
		}
	}
	return s
}

// row returns a row of a table.
func (s *series) row(name string) string {
	work, votes := s.share()
	mean := 0.0
	for _, used := range s.used {
		mean += used / float64(len(s.used))
	}
	return fmt.Sprintf("| %s | %.1f | %.1f | %.1f (%.1f–%.1f) | %.2f | %.2f | %d | %d |", name, 100*work, 100*votes,
		100*mean, 100*slices.Min(s.used), 100*slices.Max(s.used), s.seconds(), 100*s.lost(), s.late, s.away)
}

const header = "| | work % | votes % | honest utilisation % | s per round | lost % | slow | dropped |"

// TestEqualSpeeds compares runs of equal members with and without shares by speed.
func TestEqualSpeeds(t *testing.T) {
	t.Log(header)
	var times []float64
	for _, equal := range []bool{true, false} {
		s := runSeries(t, field{relative: []float64{1}, clients: *speedMembers, rounds: *speedRounds, equal: equal})
		t.Log(s.row(map[bool]string{true: "without shares", false: "with shares"}[equal]))
		times = append(times, s.seconds())
	}
	if t.Logf("rounds are %.2f %% longer", 100*(times[1]/times[0]-1)); times[1] > 1.03*times[0] { // with noise
		t.Errorf("rounds of equal members take %.2f s with shares, but %.2f s without", times[1], times[0])
	}
}

// TestUtilisation measures how much of members' speeds runs use.
func TestUtilisation(t *testing.T) {
	t.Log(header)
	for _, clients := range []int{3, *speedMembers} {
		s := runSeries(t, field{relative: []float64{1, 4, 16}, clients: clients, rounds: *speedRounds})
		t.Log(s.row(fmt.Sprintf("1:4:16, %d members", clients)))
		if least := slices.Min(s.used); least < 0.8 {
			t.Errorf("%d members: utilisation %.3f", clients, least)
		}
	}
}

// TestThrottledMember slows a member to an eighth of its speed for ten rounds. It must keep its seat, and must have
// most of its share again soon. The slowest of three members is not tested: an eighth of its speed is less than
// a sixteenth of the reference, which is the smallest share.
func TestThrottledMember(t *testing.T) {
	const first, last = 20, 29
	for _, test := range []struct{ clients, member int }{{3, 1}, {3, 2}, {7, 0}, {7, 1}, {7, 2}} {
		f := field{relative: []float64{1, 4, 16}, clients: test.clients, rounds: 42}
		f.slowed = func(member int, step uint32) float64 {
			if member == test.member && step >= first && step <= last {
				return 1. / 8
			}
			return 1
		}
		f.run(1)
		if f.violation != nil {
			t.Error(f.violation)
		}
		m, again := &f.measured, 0
		for i := last; i < len(m.sizes) && again == 0; i++ { // sizes[i] is of step i+1
			if 4*m.sizes[i][test.member] >= 3*m.sizes[first-2][test.member] {
				again = i + 1 - last
			}
		}
		result := fmt.Sprintf("%d members, speed %v: missing results of all members %v, slow %v, dropped %v, most of its share again after %d rounds",
			test.clients, f.relative[test.member], m.missing, m.late, m.away, again)
		if t.Log(result); slices.Contains(m.away, true) || again == 0 || again > 12 {
			t.Error(result)
		}
	}
}
