package coordinator

import "testing"

// TestFastestIsCutWithAudits has one fast member. Only a run with audits cuts its share, and its level stays, so
// that it gets its whole share once another member is as fast.
func TestFastestIsCutWithAudits(t *testing.T) {
	for percent, want := range map[uint8]uint8{0: 110, 25: 96} {
		config := longConfig()
		config.SharesBySpeed, config.VerificationPercent = true, percent
		s := newRun(t, config, "a", "b", "c")
		s.offers("a", 110)
		s.offers("b", 80)
		s.offers("c", 80)
		for range 20 {
			s.without(nil)
		}
		s.wantLevel("a", 110)
		round := s.CurrentRound()
		if member, _ := round.MemberIndex(clientID("a")); round.Levels[member] != want {
			t.Errorf("%d %% audits: level %d in the round, want %d", percent, round.Levels[member], want)
		}
	}
}
