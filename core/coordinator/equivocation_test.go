package coordinator

import "testing"

// TestTwoResultsEject checks that a member that signed two results of a stored round is ejected for
// the rest of the epoch and for the next epoch, whichever client proves it. No other member is
// ejected.
func TestTwoResultsEject(t *testing.T) {
	config := testConfig()
	config.RoundsPerEpoch = 9
	s := newRun(t, config, "a", "b", "c", "d", "e")
	proof := Equivocation{Client: clientID("d"), Step: s.Progress.Step}
	s.refused("x", proof, ErrNotMember)
	s.refused("a", Equivocation{Client: clientID("d"), Step: s.Progress.Step + 1}, ErrWrongStep)
	s.refused("a", Equivocation{Client: clientID("x"), Step: s.Progress.Step}, ErrNotMember)
	s.must("a", proof)
	if member, _ := s.Member(clientID("d")); member.State != Ejected {
		t.Fatalf("the member is %v", member.State)
	}
	s.refused("b", proof, ErrNotMember)
	s.refused("d", Join{Epoch: s.Progress.Epoch}, ErrNotAuthorised)
	for range StoredRounds {
		s.step()
	}
	s.refused("a", Equivocation{Client: clientID("e"), Step: proof.Step}, ErrWrongStep)
	s.join("f")
	s.must("f", Equivocation{Client: clientID("e"), Step: s.Progress.Step - 1})
	if member, _ := s.Member(clientID("e")); member.State != Ejected {
		t.Errorf("a pending client cannot prove an equivocation: the member is %v", member.State)
	}
	s.refused("a", Equivocation{Client: clientID("e"), Step: s.Progress.Step - 1}, ErrNotMember)
}

// TestTwoResultsEjectAMemberThatLeft checks that a member that signed two results cannot escape by
// leaving before the proof. It cannot get back its seat or its record as an old member after the
// run has forgotten the round.
func TestTwoResultsEjectAMemberThatLeft(t *testing.T) {
	for name, leave := range map[string]func(s *run){
		"in the running round": func(s *run) { s.must("d", Withdraw{Client: clientID("d")}) },
		"a round before":       func(s *run) { s.must("d", Withdraw{Client: clientID("d")}); s.step() },
		"and waits again":      func(s *run) { s.must("d", Join{Epoch: s.Progress.Epoch}); s.step() },
		"and waits no more": func(s *run) {
			s.must("d", Join{Epoch: s.Progress.Epoch})
			s.step()
			s.must("d", Withdraw{Client: clientID("d")})
		},
		"between epochs": func(s *run) {
			s.until(WaitingForMembers)
			s.must("d", Withdraw{Client: clientID("d")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			config.RoundsPerEpoch = 4
			config.ProbationSteps = 3
			s := newRun(t, config, "a", "b", "c", "d", "e")
			s.step()
			proof := Equivocation{Client: clientID("d"), Step: s.Progress.Step}
			leave(s)
			s.must("a", proof)
			s.refused("b", proof, ErrNotMember)
			s.refused("d", Join{Epoch: s.Progress.Epoch}, ErrNotAuthorised)
			joins := Client{ID: clientID("d")}
			if s.credit(&joins); s.IsPending(joins.ID) || !joins.isNew() {
				t.Error("the client is still known as an old member")
			}
			if s.RunState == RoundTrain {
				s.step()
				s.refused("d", Return{Epoch: s.Progress.Epoch}, ErrNotAuthorised)
			}
		})
	}
}
