package sim

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// speedsPlan is the plan of a run with audits and shares by speed.
type speedsPlan struct {
	seed     uint64
	speeds   []int64 // of the members: sequences in a second
	audits   uint8   // verification_percent
	applyLag uint32
	rounds   uint32
	batch    uint32                  // sequences of a round; 0: as many as the members train in ten seconds
	roles    map[int]scenario.Faults // Byzantine members
	starved  bool                    // members are slower for some time
}

// speedsRun has the counts of a run.
type speedsRun struct {
	late, dropped, accused int            // honest members
	ejected                map[int]uint32 // step by member
	began                  map[int]uint32 // first step in which a cheat sent a false result
	trials                 int
	used                   float64 // part of the honest members' time for which they trained
}

// firstShares is the first step whose shares follow speeds. Slow members may be late before.
const firstShares = 3

// threeSpeeds returns the speeds of count members: a third each has the speeds 4, 16 and 64.
func threeSpeeds(count int) (speeds []int64) {
	for i := range count {
		speeds = append(speeds, []int64{4, 16, 64}[3*i/count])
	}
	return speeds
}

func (plan speedsPlan) String() string {
	return fmt.Sprintf("seed %d, %d members, %d %%, lag %d, %v", plan.seed, len(plan.speeds), plan.audits, plan.applyLag, plan.roles)
}

// runSpeeds simulates a run. With the right shares, a round takes about ten seconds.
func runSpeeds(t *testing.T, plan speedsPlan) (r speedsRun) {
	t.Helper()
	r.ejected, r.began = make(map[int]uint32), make(map[int]uint32)
	w := newWorld(Options{Seed: plan.seed, Clients: len(plan.speeds), Rounds: int(plan.rounds), Faults: scenario.NoFaults, Shares: true})
	defer w.workers.Close()
	watch := newSpeedsWatch(w, &r)
	w.rules.tick, w.rules.apply = watch.tick, watch.apply
	w.plan.ApplyLag = plan.applyLag
	k, sum := &w.plan.Config, int64(0)
	for i, m := range w.machines {
		m.Roles = plan.roles[i]
		m.sequence = second / plan.speeds[i]
		sum += plan.speeds[i]
	}
	k.VerificationPercent, k.WitnessNodes = plan.audits, 0
	k.MaxRoundTrainTime, k.RoundWitnessTime = 60_000, 3000
	k.RoundsPerEpoch, k.EpochTime, k.TotalSteps = plan.rounds, 0, plan.rounds
	k.EjectionEpochs, k.ProbationSteps = 1, 0
	size := cmp.Or(plan.batch, uint32(sum*10*int64(100-plan.audits)/100))
	k.GlobalBatchSizeStart, k.GlobalBatchSizeEnd, k.GlobalBatchSizeWarmupTokens = size, size, 0
	w.begin()
	if plan.starved {
		watch.starve()
	}
	w.loop()
	if w.violation != nil {
		t.Errorf("%v: %v", plan, w.violation)
	}
	watch.end()
	return r
}

// speedsWatch observes a run.
type speedsWatch struct {
	w             *world
	r             *speedsRun
	late, dropped map[coordinator.ClientID]bool
	lateness      map[coordinator.ClientID]coordinator.Lateness
	trials        map[coordinator.Trial]bool
	sequences     map[uint32]map[int]uint64 // by step and member
	first, last   int64                     // time of rounds
}

func newSpeedsWatch(w *world, r *speedsRun) *speedsWatch {
	return &speedsWatch{
		w: w, r: r, late: make(map[coordinator.ClientID]bool), dropped: make(map[coordinator.ClientID]bool),
		lateness: make(map[coordinator.ClientID]coordinator.Lateness),
		trials:   make(map[coordinator.Trial]bool), sequences: make(map[uint32]map[int]uint64),
	}
}

func (x *speedsWatch) honest(id coordinator.ClientID) bool { return x.w.cast.Of(id).Honest() }

// tick observes a tick. The host and its followers tick the same states.
func (x *speedsWatch) tick(s *coordinator.State, now uint64, draw [32]byte) bool {
	changed := s.Tick(now, draw)
	for _, m := range s.Epoch.Clients {
		if was := x.lateness[m.ID]; was == coordinator.OnTime && m.Lateness != was && s.Progress.Step > firstShares && x.honest(m.ID) {
			x.late[m.ID] = true
		}
		x.lateness[m.ID] = m.Lateness
	}
	for _, m := range s.Epoch.Exited {
		if m.State == coordinator.Dropped && x.honest(m.ID) {
			x.dropped[m.ID] = true
		}
	}
	if s.RunState == coordinator.RoundTrain && x.sequences[s.Progress.Step] == nil {
		x.begun(s)
	}
	return changed
}

// begun observes a new round.
func (x *speedsWatch) begun(s *coordinator.State) {
	round, of := s.CurrentRound(), make(map[int]uint64)
	for _, a := range round.Assignments(s.Config) {
		m := x.w.cast.Of(round.Members[a.Member])
		of[m.Index] = a.Batch.Len()
		if m.HasRole(scenario.CheatingTrainer) && x.w.machines[m.Index].cheats(s.Progress.Step) && x.r.began[m.Index] == 0 {
			x.r.began[m.Index] = s.Progress.Step
		}
	}
	x.sequences[s.Progress.Step] = of
	if x.last = x.w.now; x.first == 0 {
		x.first = x.w.now
	}
}

func (x *speedsWatch) apply(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
	before := len(s.Authority.Ejections)
	err := s.Apply(from, nonce, a)
	if len(s.Authority.Ejections) > before {
		for _, e := range s.Authority.Ejections[before:] {
			if i := x.w.cast.Of(e.Client).Index; x.r.ejected[i] == 0 {
				x.r.ejected[i] = s.Progress.Step
			}
		}
	}
	if accusation, ok := a.(coordinator.Accuse); ok && err == nil {
		t := coordinator.Trial{Accused: accusation.Client, Accuser: from, Step: accusation.Step}
		if !x.trials[t] && x.honest(from) && x.honest(accusation.Client) {
			x.r.accused++
		}
		x.trials[t] = true
	}
	return err
}

// starve makes a third of the members slower by a factor of up to eight for some rounds.
func (x *speedsWatch) starve() {
	for i, m := range x.w.machines {
		if i%3 != 0 {
			continue
		}
		usual := m.sequence
		from := x.w.faults.Between(60, 200) * second
		x.w.events.Put(from, func() { m.sequence = usual * x.w.faults.Between(2, 8) })
		x.w.events.Put(from+x.w.faults.Between(30, 120)*second, func() { m.sequence = usual })
	}
}

func (x *speedsWatch) end() {
	x.r.late, x.r.dropped, x.r.trials = len(x.late), len(x.dropped), len(x.trials)
	honest, trained := 0, int64(0)
	for _, m := range x.w.machines {
		if m.Honest() {
			honest++
		}
	}
	newest := uint32(0)
	for step := range x.sequences {
		newest = max(newest, step)
	}
	for step, of := range x.sequences {
		for i, sequences := range of {
			if step != newest && x.w.machines[i].Honest() {
				trained += int64(sequences) * x.w.machines[i].sequence
			}
		}
	}
	x.r.used = float64(trained) / float64(x.last-x.first) / float64(honest)
}

// check checks that cheats were ejected, and that honest members lost nothing.
func (r speedsRun) check(t *testing.T, plan speedsPlan) {
	t.Helper()
	t.Logf("%v: %d trials, members ejected in steps %v, false results from steps %v, used %.3f", plan, r.trials, r.ejected, r.began, r.used)
	for member, role := range plan.roles {
		if role&scenario.CheatingTrainer != 0 && r.ejected[member] == 0 {
			t.Errorf("%v: the cheat %d was not ejected", plan, member)
		}
	}
	for member := range r.ejected {
		if plan.roles[member] == 0 {
			t.Errorf("%v: the honest member %d was ejected in step %d", plan, member, r.ejected[member])
		}
	}
	if r.late+r.dropped+r.accused > 0 {
		t.Errorf("%v: %d honest members are late, %d dropped, %d accused", plan, r.late, r.dropped, r.accused)
	}
}

// TestAuditsBySpeed has members of three speeds in runs with audits. Juries eject a cheat of any speed, also if it is the
// only fast member, and if a coalition of almost a third of the members accuses honest members, so that many trials are
// open. Slow jurors need ten rounds and more for a recomputation, and no honest member is late or loses its seat.
func TestAuditsBySpeed(t *testing.T) {
	cheat := func(member int) map[int]scenario.Faults {
		return map[int]scenario.Faults{member: scenario.CheatingTrainer}
	}
	for name, plan := range map[string]speedsPlan{
		"honest members":       {seed: 1, speeds: threeSpeeds(12), rounds: 30},
		"a fast cheat":         {seed: 2, speeds: threeSpeeds(12), rounds: 50, roles: cheat(11)},
		"a slow cheat":         {seed: 2, speeds: threeSpeeds(12), rounds: 20, roles: cheat(0)},
		"the only fast member": {seed: 1, speeds: append(slices.Repeat([]int64{16}, 11), 64), rounds: 45, roles: cheat(11)},
		"only cheats are fast": {seed: 2, speeds: append(slices.Repeat([]int64{4}, 9), 64, 64, 64, 64), rounds: 70, batch: 270, roles: map[int]scenario.Faults{
			9: scenario.CheatingTrainer, 10: scenario.CheatingTrainer, 11: scenario.CheatingTrainer, 12: scenario.CheatingTrainer,
		}},
		"members that starve": {seed: 2, speeds: threeSpeeds(12), rounds: 50, roles: cheat(11), starved: true},
		"a fast cheat's allies": {seed: 5, speeds: threeSpeeds(16), rounds: 100, roles: map[int]scenario.Faults{
			15: scenario.CheatingTrainer, 14: scenario.Slanderer, 13: scenario.Slanderer, 9: scenario.Slanderer, 4: scenario.Slanderer,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				t.Skip("-short: simulates many rounds")
			}
			plan.audits, plan.applyLag = 25, 1
			r := runSpeeds(t, plan)
			if plan.starved { // members may lose as much as without audits
				plan.audits, plan.roles = 0, nil
				control := runSpeeds(t, plan)
				t.Logf("without audits: %d late, %d dropped; with audits: %d late, %d dropped", control.late, control.dropped, r.late, r.dropped)
				if r.dropped > control.dropped {
					t.Error("more members are dropped with audits")
				}
				r.late, r.dropped, plan.roles = 0, 0, cheat(11)
			}
			r.check(t, plan)
		})
	}
}
