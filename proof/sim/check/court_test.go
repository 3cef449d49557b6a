package check

import (
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// violations is a View that records violations.
type violations struct {
	View
	all []*Violation
}

func (v *violations) Now() int64           { return 0 }
func (v *violations) Violate(w *Violation) { v.all = append(v.all, w) }

// Parties of the trial in these tests. All clients with numbers from 1 to courtMembers are members.
const (
	accuser      = 1
	accused      = 2
	courtMembers = 6
)

// courtRun is a run of a real coordinator. A Checker checks only its trials.
type courtRun struct {
	t     *testing.T
	s     coordinator.State
	c     *Checker
	seen  *violations
	now   uint64
	nonce uint64
}

func newCourtRun(t *testing.T) *courtRun {
	t.Helper()
	s, err := coordinator.New("court", coordinator.ClientID{99}, coordinator.Config{
		WarmupTime: 60_000, CooldownTime: 60_000, RoundsPerEpoch: 1, MaxRoundTrainTime: 60_000, RoundWitnessTime: 1000,
		WaitingForMembersExtraTime: 1000, GlobalBatchSizeStart: 64, GlobalBatchSizeEnd: 64, TotalSteps: 8, InitMinClients: courtMembers, MinClients: 1,
	}, coordinator.Model{MaxSeqLen: 16, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}})
	if err != nil {
		t.Fatal(err)
	}
	seen := &violations{}
	run := &Run{View: seen, Cast: &cast.Cast{Members: []*cast.Member{{Roles: scenario.Slanderer}}}}
	return &courtRun{t: t, s: s, c: &Checker{run: run, courts: newCourts()}, seen: seen, now: 1_000_000}
}

func (r *courtRun) apply(from byte, a coordinator.Action) {
	r.t.Helper()
	r.nonce++
	id := coordinator.ClientID{from}
	if err := r.s.Apply(id, r.nonce, a); err != nil {
		r.t.Fatalf("%T of client %d in %v: %v", a, from, r.s.RunState, err)
	}
	r.c.courtAction(&r.s, id, a)
}

// tickTo ticks until the run reaches a phase. Every phase ends by its time.
func (r *courtRun) tickTo(phase coordinator.RunState) {
	r.t.Helper()
	for range 20 {
		if r.s.RunState == phase {
			return
		}
		before := MarkOf(&r.s)
		r.now += 20_000
		r.s.Tick(r.now, [32]byte{byte(r.now / 20_000)})
		r.c.courtsTick(r.now)
		if r.s.RunState == before.runState {
			continue
		}
		switch r.s.RunState {
		case coordinator.Cooldown:
			r.c.courtsOver(r.s.Config, before, r.now)
		case coordinator.RoundTrain:
			r.c.juriesDrawn(r.s.CurrentRound())
		case coordinator.Warmup:
			r.c.courtsBegin(&r.s)
		}
		r.c.ejections(&r.s)
	}
	if r.s.RunState != phase {
		r.t.Fatalf("the run is in %v, want %v", r.s.RunState, phase)
	}
}

// readyAll makes all healthy members Ready.
func (r *courtRun) readyAll() {
	r.t.Helper()
	for i := range r.s.Epoch.Clients {
		if m := r.s.Epoch.Clients[i]; m.State == coordinator.Healthy {
			r.apply(m.ID[0], coordinator.Ready{Epoch: r.s.Progress.Epoch})
		}
	}
}

// complain plays two epochs. In the first one a member accuses another member. In the second one the
// accuser gives up its seat in a given phase, and waits for the third epoch. A jury then acquits the
// accused. The run is then in the second Cooldown.
func (r *courtRun) complain(leaves coordinator.RunState) {
	r.t.Helper()
	for id := byte(1); id <= courtMembers; id++ {
		r.apply(id, coordinator.Join{})
	}
	r.tickTo(coordinator.Warmup)
	r.readyAll()
	r.tickTo(coordinator.Cooldown)
	r.apply(accuser, coordinator.Accuse{Step: 1, Client: coordinator.ClientID{accused}, Fault: coordinator.FaultSilent})
	r.tickTo(coordinator.Warmup)
	if leaves == coordinator.Warmup {
		r.apply(accuser, coordinator.Join{Epoch: 1})
	}
	r.readyAll()
	r.tickTo(coordinator.RoundTrain)
	if leaves != coordinator.Warmup {
		r.tickTo(leaves)
		r.apply(accuser, coordinator.Join{Epoch: 1})
	}
	for id := byte(accused + 1); id <= courtMembers && len(r.s.Trials) > 0; id++ {
		r.apply(id, coordinator.Vote{Step: 1, Client: coordinator.ClientID{accused}})
	}
	r.tickTo(coordinator.Cooldown)
	if len(r.s.Trials) > 0 || len(r.s.Pending) != 1 || r.s.Pending[0].Complaints != 1 {
		r.t.Fatalf("%d trials and %d pending clients, want 0 trials, and 1 pending client with 1 complaint", len(r.s.Trials), len(r.s.Pending))
	}
}

// TestComplaintsOfPendingClients checks that a complaint of a client that waits during an epoch
// counts in its next epoch, exactly once. It does not matter in which phase the client gave up its
// seat, and whether the host restarts before the next epoch.
func TestComplaintsOfPendingClients(t *testing.T) {
	edit := func(id byte, complaints uint8) func(s *coordinator.State) {
		return func(s *coordinator.State) {
			for i := range s.Pending {
				if s.Pending[i].ID == (coordinator.ClientID{id}) {
					s.Pending[i].Complaints = complaints
				}
			}
		}
	}
	for name, fault := range map[string]func(s *coordinator.State){
		"correct":                        nil,
		"the complaint is lost":          edit(accuser, 0),
		"the complaint counts twice":     edit(accuser, 2),
		"another member has a complaint": edit(accused+1, 1),
	} {
		for _, leaves := range []coordinator.RunState{coordinator.Warmup, coordinator.RoundTrain, coordinator.Cooldown} {
			for _, restarts := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, leaves in %v, restart %t", name, leaves, restarts), func(t *testing.T) {
					complaintsCounted(t, fault, leaves, restarts)
				})
			}
		}
	}
}

// complaintsCounted checks that the Checker detects a fault in the complaints before an epoch begins,
// and accepts the correct complaints if fault is nil.
func complaintsCounted(t *testing.T, fault func(s *coordinator.State), leaves coordinator.RunState, restarts bool) {
	r := newCourtRun(t)
	r.complain(leaves)
	if restarts {
		r.c.courts = courtsOf(&r.s)
	}
	r.tickTo(coordinator.WaitingForMembers)
	if len(r.seen.all) > 0 {
		t.Fatal(r.seen.all[0])
	}
	if fault != nil {
		fault(&r.s)
	}
	r.tickTo(coordinator.Warmup)
	if m, ok := r.s.Member(coordinator.ClientID{accuser}); fault == nil && (!ok || m.Complaints != 1) {
		t.Errorf("the accuser begins its epoch without its complaint; it is a member: %t", ok)
	}
	if caught := len(r.seen.all) > 0; caught != (fault != nil) {
		t.Errorf("violations %v", r.seen.all)
	}
}
