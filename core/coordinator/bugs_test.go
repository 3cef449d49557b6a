package coordinator

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
)

// The tests of this file are named after known defects of coordinators like this one. README.md
// lists the defects and the rule that excludes each.

// step ends the running round. Healthy elected witnesses prove all awaited results.
func (r *run) step() {
	r.t.Helper()
	r.witnessAll()
	r.pass()
}

// pass advances the clock until the next round or Cooldown begins.
func (r *run) pass() {
	r.t.Helper()
	r.until(RoundWitness)
	for r.RunState == RoundWitness {
		r.now += second
		r.Tick(r.now, testDraw(r.now))
	}
}

func (r *run) refused(name string, a Action, want Code) {
	r.t.Helper()
	r.nonce++
	if err := r.Apply(clientID(name), r.nonce, a); !errors.Is(err, want) {
		r.t.Errorf("%T of %s: %v, want %v", a, name, err, want)
	}
}

// witnessOf returns the proof of a witness that holds the results of all members except lost.
func (r *run) witnessOf(lost ...string) WitnessRound {
	round := r.CurrentRound()
	a := WitnessRound{Step: round.Step}
	for _, assigned := range round.Assignments(r.Config) {
		id := round.Members[assigned.Member]
		if slices.Contains(lost, nameOf(id)) {
			continue
		}
		c := commitment(id, round.Step)
		a.Participants.Add(round.Seed, id[:])
		a.Commitments.Add(round.Seed, c[:])
	}
	return a
}

func TestBugQuorumOfFourIsThree(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c", "d")
	if got := s.CurrentRound().WitnessesNeeded; got != 3 {
		t.Fatalf("quorum of four is %d, want 3", got)
	}
	proof := s.witnessOf()
	s.must("a", proof)
	s.must("b", proof)
	s.now += second
	if s.Tick(s.now, testDraw(1)) || s.CurrentRound().HasQuorum() {
		t.Error("two of four end the round")
	}
	for n, want := range []int{0, 1, 2, 2, 3, 4, 4} {
		if got := assign.Quorum(n); got != want {
			t.Errorf("quorum of %d is %d, want %d", n, got, want)
		}
	}
}

// TestBugQuorumCountsWitnessesThatReported checks that with witness_nodes = 0 the quorum is
// relative to the elected witnesses, not to the witnesses that sent a proof.
func TestBugQuorumCountsWitnessesThatReported(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c", "d")
	s.must("a", s.witnessOf())
	s.pass()
	if s.RunState != Cooldown || s.CurrentRound().HasQuorum() {
		t.Errorf("one witness of four is a quorum: %s", s.RunState)
	}
}

func TestBugAllWitnessesAreWaitedFor(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c", "d")
	for _, name := range []string{"a", "b", "c"} {
		s.must(name, s.witnessOf())
	}
	s.now += second
	if !s.Tick(s.now, testDraw(1)) || s.RunState != RoundWitness {
		t.Error("a quorum that proved everything does not end the round")
	}
}

// TestBugQuorumFollowsTheMemberList checks that the quorum stays relative to the witnesses elected
// at the start of the round, although members leave.
func TestBugQuorumFollowsTheMemberList(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c", "d", "e", "f")
	for _, name := range []string{"a", "b"} {
		s.must(name, Withdraw{Client: clientID(name)})
	}
	if round := s.CurrentRound(); round.WitnessesNeeded != 4 || round.WitnessesElected != 6 || len(round.Members) != 6 {
		t.Errorf("quorum %d of %d after two of six left", round.WitnessesNeeded, round.WitnessesElected)
	}
}

// TestBugForgedReadiness checks that only members can report ready, and only once.
func TestBugForgedReadiness(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	s.finishEpoch("x")
	s.until(Warmup)
	epoch := s.Progress.Epoch
	s.refused("outsider", Ready{Epoch: epoch}, ErrNotMember)
	s.refused("a", Ready{Epoch: epoch - 1}, ErrWrongEpoch)
	s.must("a", Ready{Epoch: epoch})
	for range 5 {
		s.refused("a", Ready{Epoch: epoch}, ErrDuplicate)
		s.now += second
		s.Tick(s.now, testDraw(s.now))
	}
	if s.RunState != Warmup {
		t.Error("one client started the training alone")
	}
}

// TestBugReadinessIsLost checks that the first round keeps the list of ready members.
func TestBugReadinessIsLost(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	if len(s.Epoch.Ready) != 3 || !s.Epoch.Clients[2].HoldsModel {
		t.Errorf("ready in round 0: %d", len(s.Epoch.Ready))
	}
}

// TestBugWarmupTimeOutWithTooFewClients checks that no round starts if the warmup ends and too few
// clients are left at the same time.
func TestBugWarmupTimeOutWithTooFewClients(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	s.finishEpoch("x")
	s.until(Warmup)
	s.must("a", Withdraw{Client: clientID("a")})
	s.must("b", Withdraw{Client: clientID("b")})
	s.now += 1000 * second
	s.Tick(s.now, testDraw(1))
	if s.RunState != WaitingForMembers || len(s.Epoch.Rounds) != 0 {
		t.Errorf("%s with %d rounds", s.RunState, len(s.Epoch.Rounds))
	}
}

// TestBugExtraTimeRunsFromTheStateStart checks that the extra time begins when the minimum of
// clients is reached, however long the run waited before.
func TestBugExtraTimeRunsFromTheStateStart(t *testing.T) {
	state, err := New("walk", host, testConfig(), testModel())
	if err != nil {
		t.Fatal(err)
	}
	s := &run{State: state, t: t, now: 1000 * second}
	s.Tick(s.now, testDraw(1))
	s.now += 500 * second
	s.join("a", "b", "c")
	for range 5 {
		s.Tick(s.now, testDraw(1))
		if s.RunState != WaitingForMembers {
			t.Fatal("the epoch starts before waiting_for_members_extra_time")
		}
		s.now += second
	}
	s.until(Warmup)
}

// TestBugFirstEpochForgetsTheOrigin checks that the first epoch, which has no former members, keeps
// the run's checkpoint.
func TestBugFirstEpochForgetsTheOrigin(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	if s.Model.Checkpoint != testModel().Checkpoint {
		t.Errorf("checkpoint %+v", s.Model.Checkpoint)
	}
}

func TestBugTrainerWithoutABatchIsUnhealthy(t *testing.T) {
	config := testConfig()
	config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd, config.RoundsPerEpoch = 2, 2, 9
	s := newRun(t, config, "a", "b", "c", "d")
	round := *s.CurrentRound()
	s.step()
	if accusable := s.Accusable(); len(accusable) != 0 {
		t.Fatalf("accusable: %v", accusable)
	}
	for member, id := range round.Members {
		if !slices.ContainsFunc(round.Assignments(s.Config), func(a assign.Assignment) bool { return a.Member == member }) {
			s.refused("a", HealthCheck{Step: round.Step, Clients: []ClientID{id}}, ErrFalseAccusation)
		}
	}
}

// TestBugAccusedVerifierPanics checks that a member that does not train cannot be accused.
func TestBugAccusedVerifierPanics(t *testing.T) {
	config := testConfig()
	config.VerificationPercent, config.RoundsPerEpoch = 50, 9
	s := newRun(t, config, "a", "b", "c", "d", "e", "f")
	round := *s.CurrentRound()
	trainers := assign.Trainers(round.BatchSeed, len(round.Members), int(config.VerificationPercent))
	s.step()
	for member, id := range round.Members {
		if !slices.Contains(trainers, member) {
			s.refused("a", HealthCheck{Step: 1, Clients: []ClientID{id}}, ErrFalseAccusation)
		}
	}
}

// TestBugAccusationByIndexHitsAnother checks that an accusation affects only the silent member,
// although members before it in the list have left.
func TestBugAccusationByIndexHitsAnother(t *testing.T) {
	config := testConfig()
	config.RoundsPerEpoch = 9
	s := newRun(t, config, "a", "b", "c", "d", "e", "f")
	s.must("a", Withdraw{Client: clientID("a")})
	for _, name := range []string{"b", "c", "d", "e"} {
		s.must(name, s.witnessOf("e", "a"))
	}
	s.pass()
	s.must("b", HealthCheck{Step: 1, Clients: []ClientID{clientID("e")}})
	for _, client := range s.Epoch.Clients {
		if found := client.Lateness == FoundLate; found != (client.ID == clientID("e")) {
			t.Errorf("%s: late %t", nameOf(client.ID), found)
		}
	}
}

// TestBugHealthIsBlindInTheFirstRounds checks that round 0 can be judged once it is over.
func TestBugHealthIsBlindInTheFirstRounds(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c", "d")
	for _, name := range []string{"a", "b", "c"} {
		s.must(name, s.witnessOf("d"))
	}
	s.pass()
	s.must("a", HealthCheck{Step: 1, Clients: []ClientID{clientID("d")}})
}

// TestBugThreeBatchesLostForOneLeaver counts the batches that are assigned to a departed client:
// one if the host notices the departure, and three if only witnesses notice it, because two
// committees have to agree. Rounds wait for the first two of the three batches.
func TestBugThreeBatchesLostForOneLeaver(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		t.Run("noticed "+strconv.FormatBool(noticed), func(t *testing.T) {
			config := testConfig()
			config.RoundsPerEpoch = 9
			s := newRun(t, config, "a", "b", "c", "d")
			if noticed {
				s.must("host", Withdraw{Client: clientID("d")})
			}
			given := 0
			for range 5 {
				round := s.CurrentRound()
				if _, ok := round.MemberIndex(clientID("d")); ok {
					given++
				}
				if accusable := s.Accusable(); len(accusable) > 0 {
					s.must("a", HealthCheck{Step: round.Step - 1, Clients: accusable})
				}
				awaited := slices.ContainsFunc(s.Awaited(), func(a assign.Assignment) bool { return round.Members[a.Member] == clientID("d") })
				if awaited != (round.Step <= 2 && !noticed) {
					t.Errorf("step %d: the round waits for a departed member: %t", round.Step, awaited)
				}
				for _, name := range []string{"a", "b", "c"} {
					s.must(name, s.witnessOf("d"))
				}
				s.pass()
			}
			if want := map[bool]int{true: 1, false: 3}[noticed]; given != want {
				t.Errorf("%d batches assigned to departed members, want %d", given, want)
			}
		})
	}
}

// TestBugLastRoundsAreNeverApplied checks that the proofs of the last round decide which of its
// results count, like in other rounds, before the checkpoint is reported.
func TestBugLastRoundsAreNeverApplied(t *testing.T) {
	config := testConfig()
	config.TotalSteps = 2
	s := newRun(t, config, "a", "b", "c")
	s.step()
	s.step()
	if s.RunState != Cooldown {
		t.Fatalf("after the last step: %s", s.RunState)
	}
	for _, round := range []*Round{s.CurrentRound(), s.roundFromEnd(1)} {
		for _, a := range round.Assignments(s.Config) {
			c := commitment(round.Members[a.Member], round.Step)
			if _, ok := round.counted([][32]byte{c}); !ok {
				t.Errorf("batch %v of step %d does not count", a.Batch, round.Step)
			}
		}
	}
	s.finishEpoch("x")
	if s.RunState != Finished || s.Model.Checkpoint.Step != 2 {
		t.Errorf("%s with the checkpoint of step %d", s.RunState, s.Model.Checkpoint.Step)
	}
}

// TestBugDrainRoundsSkipData checks that every round trains, also if time ends the epoch, and that
// the next epoch continues at the next sequence.
func TestBugDrainRoundsSkipData(t *testing.T) {
	config := testConfig()
	config.RoundsPerEpoch, config.EpochTime, config.TotalSteps = 0, 70*second, 1000
	s := newRun(t, config, "a", "b", "c")
	next, rounds := uint64(0), uint64(0)
	for range 3 {
		for s.RunState != Cooldown {
			round := s.CurrentRound()
			if round.DataIndex != next || len(round.Assignments(s.Config)) == 0 {
				t.Fatalf("round of step %d holds [%d,+%d), want from %d", round.Step, round.DataIndex, round.BatchSize, next)
			}
			next += uint64(round.BatchSize)
			rounds++
			s.step()
		}
		s.finishEpoch("x" + strconv.FormatUint(rounds, 10))
		s.startTraining()
	}
	if s.Progress.DataIndex != next+uint64(s.CurrentRound().BatchSize) {
		t.Errorf("data index %d after %d sequences", s.Progress.DataIndex, next)
	}
}

// TestBugEpochEndGuardUsesAbsoluteStep checks an epoch whose time passes in its first round, at the
// first step of the run. It ends two rounds later, like any other epoch.
func TestBugEpochEndGuardUsesAbsoluteStep(t *testing.T) {
	config := testConfig()
	config.RoundsPerEpoch, config.EpochTime, config.MaxRoundTrainTime = 0, 70*second, 60*second
	s := newRun(t, config, "a", "b", "c")
	s.Epoch.StartTime -= 70 * second
	for step := uint32(1); step <= 3; step++ {
		if s.RunState != RoundTrain || s.Progress.Step != step {
			t.Fatalf("%s at step %d, want to train step %d", s.RunState, s.Progress.Step, step)
		}
		s.step()
	}
	if s.RunState != Cooldown {
		t.Errorf("%s after two more rounds", s.RunState)
	}
}

// TestBugSeedsArePredictable checks that a round's seed depends on the draw of the host at the
// start of the round and on all earlier draws.
func TestBugSeedsArePredictable(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	s.witnessAll()
	s.until(RoundWitness)
	now := s.now + 10*second
	seeds := map[uint64]bool{}
	for seed := range uint64(100) {
		next := s.Clone()
		next.Tick(now, testDraw(seed))
		seeds[next.CurrentRound().Seed] = true
	}
	if len(seeds) != 100 {
		t.Errorf("%d different seeds after 100 different draws", len(seeds))
	}
}

// TestBugPauseForgetsTheModel checks that a pause ends the epoch with its checkpoint, and that the
// members continue from the checkpoint without another Join.
func TestBugPauseForgetsTheModel(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	s.must("host", SetPaused{Paused: true})
	s.finishEpoch("x")
	if s.RunState != Paused || s.Model.Checkpoint.Kind != CheckpointP2P || s.Model.Checkpoint.Step != 1 {
		t.Fatalf("%s with %+v", s.RunState, s.Model.Checkpoint)
	}
	s.must("host", SetPaused{})
	s.startTraining()
	if s.Model.Checkpoint.Kind != CheckpointP2P || len(s.Epoch.Clients) != 3 || s.Progress.Step != 2 {
		t.Errorf("resumed at step %d with %d members and %s", s.Progress.Step, len(s.Epoch.Clients), s.Model.Checkpoint.Kind)
	}
}

// TestBugWithdrawnClientCannotReturn checks that a client that lost its connection can join again
// at once, also in the same epoch, and keeps its seat.
func TestBugWithdrawnClientCannotReturn(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c", "d")
	s.must("host", Withdraw{Client: clientID("d")})
	s.join("d")
	s.finishEpoch("x")
	s.startTraining()
	if _, ok := s.CurrentRound().MemberIndex(clientID("d")); !ok {
		t.Error("d is not a member of the next epoch")
	}
}

// TestBugPlacesAreNeverFreed checks that 256 limits only the number of simultaneous clients.
func TestBugPlacesAreNeverFreed(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	for i := range 3 * MaxClients {
		name := "guest " + strconv.Itoa(i)
		s.join(name)
		s.must(name, Withdraw{Client: clientID(name)})
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// TestBugMembersAreInRandomOrder checks that members are listed in the order of their joins.
func TestBugMembersAreInRandomOrder(t *testing.T) {
	names := []string{"d", "b", "a", "c"}
	s := newRun(t, testConfig(), names...)
	for i, id := range s.CurrentRound().Members {
		if nameOf(id) != names[i] {
			t.Errorf("member %d is %s, want %s", i, nameOf(id), names[i])
		}
	}
}

// TestBugPreviousRoundIsAnEmptySlot checks that the state contains no rounds that did not take
// place.
func TestBugPreviousRoundIsAnEmptySlot(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	if s.roundFromEnd(1) != nil {
		t.Error("the first round has a previous round")
	}
	s.step()
	if s.roundFromEnd(1).Step != 1 || s.roundFromEnd(2) != nil || s.RoundOfStep(0) != nil {
		t.Error("the second round has two previous rounds")
	}
}

// TestBugCooldownForgetsTheWitnesses checks that the proofs of the last round are kept until the
// Warmup of the next epoch. They are needed to count its results and to drop its silent members.
func TestBugCooldownForgetsTheWitnesses(t *testing.T) {
	config := testConfig()
	config.RoundsPerEpoch = 1
	s := newRun(t, config, "a", "b", "c", "d")
	for _, name := range []string{"a", "b", "c"} {
		s.must(name, s.witnessOf("d"))
	}
	s.pass()
	if s.RunState != Cooldown || len(s.CurrentRound().Witnesses) != 3 {
		t.Fatalf("%s with %d witnesses", s.RunState, len(s.CurrentRound().Witnesses))
	}
	s.must("a", HealthCheck{Step: 1, Clients: []ClientID{clientID("d")}})
}

// TestBugCheckpointByAnyone checks that a single member or a client outside the run cannot choose
// the model of the next epoch.
func TestBugCheckpointByAnyone(t *testing.T) {
	config := testConfig()
	config.RoundsPerEpoch = 1
	s := newRun(t, config, "a", "b", "c")
	s.step()
	s.refused("outsider", ReportCheckpoint{Step: 2, Digest: clientID("evil")}, ErrNotMember)
	s.must("a", ReportCheckpoint{Step: 2, Digest: clientID("evil")})
	s.refused("a", ReportCheckpoint{Step: 2, Digest: clientID("evil")}, ErrDuplicate)
	s.until(WaitingForMembers)
	if s.Model.Checkpoint != testModel().Checkpoint {
		t.Errorf("checkpoint %+v", s.Model.Checkpoint)
	}
}
