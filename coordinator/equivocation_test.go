package coordinator

import "testing"

// TestTwoResultsEject: a member that signed two results of a stored round is out for the rest of the
// epoch and the whole next one, whoever proves it, and nobody else is.
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
		t.Fatalf("it is %v", member.State)
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
		t.Errorf("a pending client proves nothing: it is %v", member.State)
	}
	s.refused("a", Equivocation{Client: clientID("e"), Step: s.Progress.Step - 1}, ErrNotMember)
}
