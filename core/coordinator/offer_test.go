package coordinator

import (
	"slices"
	"testing"
)

// newSharesRun returns a run whose shares follow offers. All members have offered the level 80, and have it.
func newSharesRun(t *testing.T, names ...string) *run {
	t.Helper()
	config := longConfig()
	config.SharesBySpeed = true
	s := newRun(t, config, names...)
	for _, name := range names {
		s.offers(name, 80)
	}
	s.without(nil)
	s.without(nil)
	for _, name := range names {
		s.wantLevel(name, 80)
	}
	return s
}

func (r *run) offers(name string, level uint8) {
	r.t.Helper()
	r.must(name, Offer{Step: r.Progress.Step, Level: level})
}

func (r *run) wantLevel(name string, want uint8) {
	r.t.Helper()
	if client, ok := r.Member(clientID(name)); !ok || client.Level != want {
		r.t.Fatalf("level of %s in step %d is not %d:\n%s", name, r.Progress.Step, want, r.String())
	}
}

// wantLateness also checks whether the run excused the member in the previous round.
func (r *run) wantLateness(name string, want Lateness, excused bool) {
	r.t.Helper()
	client, ok := r.Member(clientID(name))
	last := r.RoundOfStep(r.Progress.Step - 1)
	member, _ := last.MemberIndex(clientID(name))
	if !ok || client.Lateness != want || last.Excused.Has(member) != excused {
		r.t.Fatalf("lateness of %s in step %d is not %d, or it is not true that it is excused (%t):\n%s", name, r.Progress.Step, want, excused, r.String())
	}
}

// share returns the number of sequences of a member in the running round.
func (r *run) share(name string) uint64 {
	r.t.Helper()
	round := r.CurrentRound()
	for _, a := range round.Assignments(r.Config) {
		if round.Members[a.Member] == clientID(name) {
			return a.Batch.Len()
		}
	}
	return 0
}

func TestOffersAreRefused(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.must("d", Withdraw{Client: clientID("d")})
	s.offers("b", 83)
	equal := newRun(t, longConfig(), "a", "b", "c")
	between := newSharesRun(t, "a", "b", "c")
	between.until(Cooldown)
	equal.refused("a", Offer{Step: equal.Progress.Step, Level: 80}, ErrInvalidAction)
	between.refused("a", Offer{Step: between.Progress.Step, Level: 84}, ErrWrongState)
	step := s.Progress.Step
	s.refused("a", Offer{Step: step}, ErrInvalidAction)
	s.refused("a", Offer{Step: step, Level: 80}, ErrDuplicate)
	s.refused("b", Offer{Step: step, Level: 84}, ErrDuplicate)
	s.refused("a", Offer{Step: step - 1, Level: 84}, ErrWrongStep)
	s.refused("x", Offer{Step: step, Level: 80}, ErrNotMember)
	s.refused("d", Offer{Step: step, Level: 84}, ErrNotMember)
}

// TestOfferIsLatched checks that an offer changes the second round after the round in which it was sent. The batch
// seed of that round is unknown when the member sends the offer.
func TestOfferIsLatched(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.offers("a", 72)
	before, _ := s.NextRound()
	if got := []uint64{s.share("a"), s.share("b")}; !slices.Equal(got, []uint64{16, 16}) {
		t.Fatalf("shares %v", got)
	}
	s.without(nil)
	if !slices.Equal(before.Assignments(s.Config), s.CurrentRound().Assignments(s.Config)) || s.share("a") != 16 {
		t.Fatal("the offer changes the next round")
	}
	s.wantLevel("a", 72)
	s.without(nil)
	if got := s.share("a"); got != 9 { // half of 18.3
		t.Fatalf("%d sequences after half the offer, want 9", got)
	}
}

// TestLevelsOfANewRun checks that members have equal shares until the run knows their offers, and that levels
// outlast an epoch.
func TestLevelsOfANewRun(t *testing.T) {
	config := longConfig()
	config.SharesBySpeed, config.RoundsPerEpoch = true, 4
	state, err := New("walk", host, config, testModel())
	if err != nil {
		t.Fatal(err)
	}
	s := &run{State: state, t: t, now: 1000 * second}
	s.join("a", "b", "c")
	s.until(Warmup)
	for name, level := range map[string]uint8{"a": 80, "b": 96, "c": 96} {
		s.offers(name, level)
	}
	s.startTraining()
	if got := s.share("a"); got < 21 || got > 22 {
		t.Errorf("%d sequences in the first round, want a third of 64", got)
	}
	s.without(nil)
	if got := s.share("a"); got != 7 {
		t.Errorf("%d sequences in the second round, want a ninth of 64", got)
	}
	s.finishEpoch("x")
	s.startTraining()
	if got := s.share("a"); got != 7 {
		t.Errorf("%d sequences in the next epoch, want 7", got)
	}
}

// TestGrowthIsBounded checks that a level rises by at most an octave above the level of a result that counts, and by
// a quarter of an octave if the member is late.
func TestGrowthIsBounded(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.offers("a", 200)
	s.offers("b", 83)
	for _, want := range []uint8{88, 88, 96, 96, 104} { // results of the level before come first
		s.without(nil)
		s.wantLevel("a", want)
		s.wantLevel("b", 83)
	}
	s.without(nil, "a")
	s.wantLateness("a", FoundLate, false)
	s.wantLevel("a", 80) // the lost batch had the level 96
	s.without(nil)
	s.wantLevel("a", 106) // the batch had the level 104
	s.without(nil)
	s.wantLevel("a", 106) // the batch had the level 80
}

// TestExcusedMembersAreNotLate checks a member that offers less when it becomes slow. It loses two batches, the round
// does not wait for it, no member can accuse it, and it then has the share that it offered.
func TestExcusedMembersAreNotLate(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.offers("a", 80-LevelExcuse-1)
	for range 2 {
		for _, assigned := range s.Awaited() {
			if s.CurrentRound().Members[assigned.Member] == clientID("a") {
				t.Fatal("the round waits for an excused member")
			}
		}
		if a, _ := s.Member(clientID("a")); s.Awaits(a) {
			t.Fatal("Awaits is true for an excused member")
		}
		step := s.Progress.Step
		s.without(nil, "a")
		s.wantLateness("a", OnTime, true)
		s.refused("b", HealthCheck{Step: step, Clients: []ClientID{clientID("a")}}, ErrFalseAccusation)
		s.wantLevel("a", 75)
	}
	if got := s.CurrentRound().Levels[0]; got != 75 {
		t.Fatalf("level %d in the third round, want the offer", got)
	}
	s.without(nil)
	s.wantLateness("a", OnTime, false)
}

// TestExcusesEnd checks that a member cannot keep its share and withhold its results: the third missing result of a
// term makes it late.
func TestExcusesEnd(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	for losses := range MaxExcuses + 1 {
		for s.CurrentRound().Levels[0] != 80 {
			if client, _ := s.Member(clientID("a")); client.Offer != 80 {
				s.offers("a", 80)
			}
			s.without(nil)
		}
		s.offers("a", 60)
		s.without(nil, "a")
		if losses < MaxExcuses {
			s.wantLateness("a", OnTime, true)
		} else {
			s.wantLateness("a", FoundLate, false)
		}
		s.without(nil)
	}
	for s.Progress.Step%TermRounds != 1 {
		s.without(nil)
	}
	if client, _ := s.Member(clientID("a")); client.Excuses != 0 || client.Lateness != OnTime {
		t.Errorf("the new term does not forget the excuses:\n%s", s.String())
	}
}

// TestSmallChangesExcuseNothing checks that an offer slightly below the level does not excuse a missing result.
func TestSmallChangesExcuseNothing(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.offers("a", 80-LevelExcuse)
	s.without(nil, "a")
	s.wantLateness("a", FoundLate, false)
	s.wantLevel("a", 80-levelFall)
}

// TestLostResultsLowerTheLevel checks that a result that a quorum denies lowers the level until a result of the same level
// counts, but never to no level.
func TestLostResultsLowerTheLevel(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.without(nil, "a")
	s.wantLevel("a", 64)
	if got := s.share("a"); got != 16 {
		t.Errorf("%d sequences in the next round, want 16", got)
	}
	s.without(nil)
	s.wantLevel("a", 80) // by its result in that round
	if got := s.share("a"); got != 4 {
		t.Errorf("%d sequences in the round after it, want a thirteenth of 64", got)
	}
	for range 9 {
		client, _ := s.Member(clientID("a"))
		client.Lateness = OnTime // the test is about levels
		s.without(nil, "a")
	}
	s.wantLevel("a", 1)
}

// TestSilentWitnessesLowerNoLevel checks that the level of a member does not fall if only some witnesses lack its
// result: a quorum must deny the result.
func TestSilentWitnessesLowerNoLevel(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.must("a", s.witnessOf())
	s.must("b", s.witnessOf("d"))
	s.must("c", s.witnessOf("d"))
	s.pass()
	s.wantLevel("d", 80)
}

// TestUnprovenResultsKeepNoLargeShare checks that a member that sends each result to some witnesses only, so that no
// quorum holds or denies it, soon has only an equal share. One such result costs half of a large share.
func TestUnprovenResultsKeepNoLargeShare(t *testing.T) {
	config := longConfig()
	config.SharesBySpeed = true
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	s := newRun(t, config, names...)
	s.offers("a", 255)
	for _, name := range names[1:] {
		s.offers(name, 80)
	}
	s.without(nil)
	s.without(nil)
	if got := s.share("a"); got < 40 {
		t.Fatalf("a false offer has %d of 64 sequences: the test needs more", got)
	}
	for _, want := range []uint8{104, 104, 96, 96, 88, 88, 80, 80, 80} {
		for i, name := range names {
			if i < 4 {
				s.must(name, s.witnessOf())
			} else {
				s.must(name, s.witnessOf("a"))
			}
		}
		s.pass()
		s.wantLevel("a", want)
		s.wantLevel("b", 80)
	}
	if got := s.share("a"); got > 10 {
		t.Errorf("%d of 64 sequences, want an equal share", got)
	}
}

// TestThirdFreezesLevels checks that levels do not change if witnesses deny the results of more than a third of the
// trainers. Otherwise a slow network, or a coalition that captures one round, could halve the shares of many.
func TestThirdFreezesLevels(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d", "e", "f")
	s.offers("f", 90)
	s.without(nil, "a", "b", "c")
	for _, name := range []string{"a", "b", "c", "f"} {
		s.wantLevel(name, 80)
	}
	s = newSharesRun(t, "a", "b", "c", "d", "e", "f")
	s.without(nil, "a", "b")
	s.wantLevel("a", 64)
	s.wantLevel("b", 64)
}

// TestOneOfTwoLosesItsLevel checks that one denied result is never too many.
func TestOneOfTwoLosesItsLevel(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c")
	s.must("c", Withdraw{Client: clientID("c")})
	s.without([]string{"c"})
	s.without(nil, "a")
	s.wantLevel("a", 64)
}

// TestExcusedWitnessesAreNotAwaited checks that RoundWitness does not wait for the proof of a member that offered less.
func TestExcusedWitnessesAreNotAwaited(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.offers("a", 60)
	for _, name := range []string{"b", "c", "d"} {
		s.must(name, s.witnessOf())
	}
	s.until(RoundWitness)
	s.now += second
	if s.Tick(s.now, testDraw(s.now)); s.RunState != RoundTrain {
		t.Errorf("%s waits for the proof of an excused member", s.RunState)
	}
}

// TestNoQuorumChangesNoLevel checks that a round without a quorum of witnesses only lowers levels to offers.
func TestNoQuorumChangesNoLevel(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.offers("a", 90)
	s.offers("b", 60)
	s.until(Cooldown)
	s.wantLevel("a", 80)
	s.wantLevel("b", 60)
	s.wantLevel("c", 80)
}

// TestCooldownSealsTheLastRound checks that the last round of an epoch changes levels, too.
func TestCooldownSealsTheLastRound(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	for !s.endsBefore(s.Progress.Step + 1) {
		s.without(nil)
	}
	s.offers("a", 84)
	s.offers("b", 50)
	s.without(nil)
	if s.RunState != Cooldown {
		t.Fatalf("in %s", s.RunState)
	}
	s.wantLevel("a", 84)
	s.wantLevel("b", 50)
}

// TestMembersWithoutABatchGrowSlowly checks that a level also rises without results. Otherwise a member whose share is
// less than a sequence would never get a batch again.
func TestMembersWithoutABatchGrowSlowly(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	client, _ := s.Member(clientID("a"))
	client.Level, s.CurrentRound().Levels[0] = 20, 20
	s.Config.GlobalBatchSizeStart, s.Config.GlobalBatchSizeEnd = 12, 12
	s.without(nil)
	s.wantLevel("a", 28)
	for _, want := range []uint8{30, 32} {
		if s.share("a") != 0 {
			t.Fatalf("%d sequences for the level 20", s.share("a"))
		}
		s.without(nil)
		s.wantLevel("a", want)
	}
}

// TestTurnedOffSharesAreEqual checks that a run gives equal batches, and excuses no member, after an authority turned
// shares by speed off. The offers and levels of the members outlast the change.
func TestTurnedOffSharesAreEqual(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.offers("a", 40)
	s.must("host", SetPaused{Paused: true})
	s.until(Paused)
	config := s.Config
	config.SharesBySpeed = false
	s.must("host", UpdateConfig{Config: config, Model: s.Model})
	s.must("host", SetPaused{})
	s.until(Warmup)
	s.startTraining()
	for range 2 {
		if got := s.share("a"); got != 16 {
			t.Errorf("%d sequences, want a quarter of 64", got)
		}
		if a, _ := s.Member(clientID("a")); a.Offer != 40 || a.Level != 40 || !s.Awaits(a) || len(s.Awaited()) != 4 {
			t.Errorf("the round does not wait for all members:\n%s", s.String())
		}
		s.without(nil, "a")
	}
	if round := s.RoundOfStep(s.Progress.Step - 1); round.Excused != (MemberSet{}) || round.Levels != [MaxClients]uint8{} {
		t.Errorf("levels %v, excused %v", round.Levels, round.Excused)
	}
}
