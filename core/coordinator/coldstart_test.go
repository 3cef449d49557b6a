package coordinator

import "testing"

// TestEpochAfterAPauseStartsCold checks the first epoch, which does not start cold, and the epoch
// after a pause.
func TestEpochAfterAPauseStartsCold(t *testing.T) {
	genesis := Genesis{RunID: "walk", Host: host, Config: testConfig(), Model: testModel()}
	genesis.Config.RoundsPerEpoch = 4
	genesis.Model.ColdStartWarmupSteps = 3
	s := newRunOf(t, genesis, "a", "b", "c")
	if s.Epoch.ColdStart || s.Epoch.StartStep != 1 {
		t.Errorf("first epoch: cold %t, start %d", s.Epoch.ColdStart, s.Epoch.StartStep)
	}
	s.must("host", SetPaused{Paused: true})
	s.finishEpoch("d")
	s.must("host", SetPaused{})
	s.startTraining()
	if !s.Epoch.ColdStart || s.Epoch.StartStep != 2 {
		t.Errorf("epoch after a pause: cold %t, start %d", s.Epoch.ColdStart, s.Epoch.StartStep)
	}
}

func TestMemberSetIsBounded(t *testing.T) {
	var m MemberSet
	m.add(255)
	for _, member := range []int{-1, 0, 254, 256, 1 << 40} {
		if m.Has(member) {
			t.Errorf("%d is in the set", member)
		}
	}
	if !m.Has(255) {
		t.Error("255 is not in the set")
	}
}
