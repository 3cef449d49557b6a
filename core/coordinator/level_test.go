package coordinator

import "testing"

// setLevel sets the level of a member, also in the running round and the next round. It offers the highest speed.
func (r *run) setLevel(name string, level uint8) {
	r.t.Helper()
	client, _ := r.Member(clientID(name))
	client.Level, client.Offer = level, 255
	member, _ := r.CurrentRound().MemberIndex(clientID(name))
	r.CurrentRound().Levels[member] = level
}

// endEpoch plays the rounds of the epoch, which are few, and starts the next epoch.
func (r *run) endEpoch() {
	r.t.Helper()
	rounds := r.Config.RoundsPerEpoch
	r.Config.RoundsPerEpoch = r.Progress.Step - r.Epoch.StartStep + 1
	r.finishEpoch("x")
	r.Config.RoundsPerEpoch = rounds
}

// TestFallStartsAtTheHighestShare checks that a denied result reduces the share of every member. A share is limited, and
// a level far above this limit does not protect a member.
func TestFallStartsAtTheHighestShare(t *testing.T) {
	for _, test := range []struct{ level, want uint8 }{{250, 96}, {113, 96}, {112, 96}, {111, 95}} {
		s := newSharesRun(t, "a", "b", "c", "d", "e", "f")
		s.setLevel("a", test.level)
		s.without(nil, "a")
		s.wantLevel("a", test.want)
		s.without(nil, "a")
		s.wantLevel("a", test.want)
	}
	s := newSharesRun(t, "a", "b", "c", "d", "e", "f")
	s.setLevel("a", 250)
	s.without(nil, "a")
	s.without(nil)
	s.wantLevel("a", 112+levelSlowGrowth) // it is late, and its result counts with a share of the level 112
}

// TestRoundsWithoutLevelsLowerNone checks a missing result of a round in which a member had no level, so that its batch
// could be too large for it.
func TestRoundsWithoutLevelsLowerNone(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d", "e", "f")
	s.setLevel("a", 100)
	member, _ := s.CurrentRound().MemberIndex(clientID("a"))
	s.CurrentRound().Levels[member] = 0
	s.without(nil, "a")
	s.wantLevel("a", 100)
}

// TestHighLevelsAreExcused checks that the end of a round excuses the members for which the round did not wait, also if
// their offers are above the highest level that counts.
func TestHighLevelsAreExcused(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.setLevel("a", 250)
	s.offers("a", 200)
	if a, _ := s.Member(clientID("a")); s.Awaits(a) {
		t.Error("the round waits for an excused member")
	}
	s.without(nil, "a")
	s.wantLateness("a", OnTime, true)
	s.wantLevel("a", 200)
}

// TestLevelsOutlastSeats checks that a member that leaves and joins again keeps its low level, whenever it leaves and
// joins.
func TestLevelsOutlastSeats(t *testing.T) {
	for name, leave := range map[string]func(s *run){
		"during the round with the denied result": func(s *run) {
			s.join("a")
			s.without(nil, "a")
		},
		"before it is removed, but not pending any more": func(s *run) {
			s.join("a")
			s.must("a", Withdraw{Client: clientID("a")})
			s.join("a")
			s.without(nil, "a")
		},
		"later in the epoch": func(s *run) {
			s.without(nil, "a")
			s.join("a")
			s.without(nil, "a")
		},
		"after it was removed": func(s *run) {
			s.must("a", Withdraw{Client: clientID("a")})
			s.without(nil, "a")
			s.join("a")
		},
		"in the next epoch": func(s *run) {
			s.must("a", Withdraw{Client: clientID("a")})
			s.without(nil, "a")
			s.endEpoch()
			s.until(Warmup)
			s.join("a")
			s.startTraining()
		},
		"without the model that it held": func(s *run) {
			s.without(nil, "a")
			s.Config.RoundsPerEpoch = s.Progress.Step - s.Epoch.StartStep + 1
			s.without(nil, "a")
			s.finishEpoch("x")
			s.join("a")
			s.Config.RoundsPerEpoch = 40
			s.startTraining()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSharesRun(t, "a", "b", "c", "d")
			for leave(s); !s.isHealthy(clientID("a")); s.startTraining() {
				s.endEpoch()
			}
			if client, _ := s.Member(clientID("a")); client == nil || client.Level != 64 || client.Offer != 80 {
				t.Errorf("want the level 64 of 80:\n%s", s.String())
			}
		})
	}
}

// TestNewcomersStartInTheMiddle checks that the first level of a new member is at most the reference level of the
// members. Otherwise new keys could take most of each epoch's first batches, and lose them.
func TestNewcomersStartInTheMiddle(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d", "e")
	s.join("x", "y")
	s.endEpoch()
	s.startTraining()
	for name, level := range map[string]uint8{"a": 30, "b": 72, "d": 85, "e": 88} {
		s.setLevel(name, level)
	}
	s.offers("x", 255)
	s.offers("y", 40)
	s.without(nil)
	s.wantLevel("x", 80)
	s.wantLevel("y", 40)
}

// TestExcusesOfALastRoundCount checks that the last round of a term counts to that term: a third missing result of the
// term is not excused in it.
func TestExcusesOfALastRoundCount(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	for s.Progress.Step < TermRounds {
		s.without(nil)
	}
	client, _ := s.Member(clientID("a"))
	client.Excuses = MaxExcuses
	s.offers("a", 60)
	if !s.Awaits(client) {
		t.Fatal("the round does not wait for the member")
	}
	s.without(nil, "a")
	s.wantLateness("a", FoundLate, false)
	if client, _ := s.Member(clientID("a")); client.Excuses != 0 {
		t.Error("the new term does not forget the excuses")
	}
	s = newSharesRun(t, "a", "b", "c", "d")
	for s.Progress.Step < TermRounds {
		s.without(nil)
	}
	s.offers("a", 60)
	s.without(nil, "a")
	s.wantLateness("a", OnTime, true)
	if client, _ := s.Member(clientID("a")); client.Excuses != 0 {
		t.Error("an excuse of the last round counts in the new term")
	}
}

// TestLateMembersGrowSlowlyInALastRound checks that a late member's level rises slowly also in the last round of a term.
func TestLateMembersGrowSlowlyInALastRound(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	for s.Progress.Step < TermRounds {
		s.without(nil)
	}
	client, _ := s.Member(clientID("a"))
	client.Lateness, client.Offer = Late, 100
	s.without(nil)
	s.wantLevel("a", 80+levelSlowGrowth)
}

// TestOldOffersExcuseNothing checks that the round waits for a member that left after a lower offer, and came back: it
// has the share that it offered.
func TestOldOffersExcuseNothing(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	s.offers("a", 60)
	s.must("a", Withdraw{Client: clientID("a")})
	s.without(nil, "a")
	s.must("a", Return{Epoch: s.Progress.Epoch})
	s.without(nil)
	a, _ := s.Member(clientID("a"))
	if member, _ := s.CurrentRound().MemberIndex(a.ID); s.CurrentRound().Levels[member] != 60 || !s.Awaits(a) {
		t.Errorf("the round does not wait for a returned member:\n%s", s.String())
	}
	if a.Excuses != 1 || len(s.Awaited()) != 4 {
		t.Errorf("%d excuses, %d awaited", a.Excuses, len(s.Awaited()))
	}
}

// TestLeaversFall checks that a member whose result is denied loses its level even if it leaves before the end of the
// round, and that a result that counts raises it.
func TestLeaversFall(t *testing.T) {
	for _, lost := range []bool{true, false} {
		s := newSharesRun(t, "a", "b", "c", "d")
		s.setLevel("c", 72)
		s.must("c", Withdraw{Client: clientID("c")})
		want := uint8(80)
		if lost {
			want = 56
			s.without([]string{"c"})
		} else {
			s.without(nil)
		}
		s.must("c", Return{Epoch: s.Progress.Epoch})
		s.wantLevel("c", want)
	}
}

// TestAllMembersLeave checks that a denied result lowers a level also if all members leave the round.
func TestAllMembersLeave(t *testing.T) {
	s := newSharesRun(t, "a", "b", "c", "d")
	for _, name := range []string{"b", "c", "d"} {
		s.must(name, s.witnessOf("a"))
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		s.must(name, Withdraw{Client: clientID(name)})
	}
	s.until(Cooldown)
	if i := indexOf(s.Epoch.Exited, clientID("a")); len(s.Epoch.Clients) > 0 || i < 0 || s.Epoch.Exited[i].Level != 80-levelFall {
		t.Errorf("want an empty list of members, and the level 64:\n%s", s.String())
	}
}
