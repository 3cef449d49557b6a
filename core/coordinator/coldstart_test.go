package coordinator

import "testing"

// TestColdStartScalesTheLearningRate checks the learning rate scale in the first epoch, which does
// not start cold, and in the epoch after a pause.
func TestColdStartScalesTheLearningRate(t *testing.T) {
	genesis := Genesis{RunID: "walk", Host: host, Config: testConfig(), Model: testModel()}
	genesis.Config.RoundsPerEpoch = 4
	genesis.Model.ColdStartWarmupSteps = 3
	s := newRunOf(t, genesis, "a", "b", "c")
	check := func(step, numerator, denominator uint32) {
		t.Helper()
		if n, d := s.LearningRateScale(step); n != numerator || d != denominator {
			t.Errorf("scale of step %d is %d/%d, want %d/%d", step, n, d, numerator, denominator)
		}
	}
	check(1, 1, 1)
	if start, steps := s.coldStartBounds(); start != 1 || steps != 0 {
		t.Errorf("bounds of a warm epoch: %d, %d", start, steps)
	}
	s.must("host", SetPaused{Paused: true})
	s.finishEpoch("d")
	s.must("host", SetPaused{})
	s.startTraining()
	if start, steps := s.coldStartBounds(); start != 2 || steps != 3 {
		t.Errorf("bounds of a cold epoch: %d, %d", start, steps)
	}
	check(1, 1, 1)
	check(2, 0, 3)
	check(3, 1, 3)
	check(4, 2, 3)
	check(5, 1, 1)
	check(1<<32-1, 1, 1)
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
