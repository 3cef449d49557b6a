package coordinator

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// checkDue ticks copies of a state before, at and after the time at which Due reports the next
// change.
func checkDue(t *rapid.T, s *State, now uint64) {
	t.Helper()
	before := s.AppendTo(nil)
	changes := func(at uint64) bool {
		c := s.Clone()
		changed := c.Tick(at, s.testDraw(1))
		if changed == bytes.Equal(before, c.AppendTo(nil)) {
			t.Fatalf("tick reports changed %t", changed)
		}
		return changed
	}
	at, ok := s.Due(now)
	if !bytes.Equal(before, s.AppendTo(nil)) {
		t.Fatal("Due changed the state")
	}
	last := uint64(1<<64 - 1)
	if ok {
		if at < now || !changes(at) {
			t.Fatalf("due at %d as seen at %d, but nothing changes then\n%s", at, now, s.String())
		}
		if at == now {
			return
		}
		last = at - 1
	}
	for _, early := range []uint64{now, last, rapid.Uint64Range(now, last).Draw(t, "early")} {
		if changes(early) {
			t.Fatalf("due at %d (%t) as seen at %d, but the state already changes at %d\n%s", at, ok, now, early, s.String())
		}
	}
}

// TestDueAtEveryTime checks times around the times of the state, before them, and the largest
// time.
func TestDueAtEveryTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := testConfig()
		config.RoundWitnessTime = rapid.SampledFrom([]uint64{1, 200, MaxTime}).Draw(t, "round witness time")
		config.TotalSteps = rapid.Uint32Range(1, 4).Draw(t, "total steps")
		s, err := New("walk", host, config, testModel())
		if err != nil {
			t.Fatal(err)
		}
		names := []string{"a", "b", "c", "d"}
		now, nonce := rapid.SampledFrom([]uint64{0, 1, 1000, 1 << 50, 1<<64 - 100*second}).Draw(t, "begin"), uint64(0)
		for range 60 {
			checkDue(t, &s, now)
			if rapid.Bool().Draw(t, "act") {
				id := clientID(rapid.SampledFrom(names).Draw(t, "client"))
				if a := honestAction(&s, id); a != nil {
					nonce++
					_ = s.Apply(id, nonce, a)
				}
				continue
			}
			switch at, ok := s.Due(now); rapid.IntRange(0, 3).Draw(t, "clock") {
			case 0:
				now -= min(now, rapid.Uint64Range(0, 5000).Draw(t, "back"))
			case 1:
				now += min(1<<64-1-now, rapid.Uint64Range(0, 5000).Draw(t, "on"))
			default:
				if ok {
					now = at
				}
			}
			s.Tick(now, testDraw(1))
		}
	})
}

// BenchmarkDue measures Due for a run of 256 clients and 32 witnesses.
func BenchmarkDue(b *testing.B) {
	for _, test := range []struct {
		name  string
		alter func(*State)
	}{
		{"RoundWitness, all reported", func(*State) {}},
		{"RoundWitness, one is silent", func(s *State) {
			round := s.CurrentRound()
			round.Witnesses = round.Witnesses[:len(round.Witnesses)-1]
		}},
		{"RoundTrain, no witness yet", func(s *State) { s.RunState, s.CurrentRound().Witnesses = RoundTrain, nil }},
		{"RoundTrain, quorum proves", func(s *State) { s.RunState = RoundTrain }},
		{"Warmup", func(s *State) { s.RunState, s.Epoch.Ready = Warmup, s.Epoch.Ready[1:] }},
		{"Cooldown", func(s *State) { s.RunState = Cooldown }},
	} {
		b.Run(test.name, func(b *testing.B) {
			s := largestState(b)
			test.alter(&s)
			now := s.StateStart
			b.ReportAllocs()
			for b.Loop() {
				s.Due(now)
			}
		})
	}
}

// TestPhaseTime checks PhaseTime in each phase of a run.
func TestPhaseTime(t *testing.T) {
	config := testConfig()
	s := newRun(t, config, "a", "b", "c", "d")
	if got := s.PhaseTime(); s.RunState != RoundTrain || got != config.MaxRoundTrainTime {
		t.Errorf("%v lasts %d at most", s.RunState, got)
	}
	waiting := State{Config: config}
	if got := waiting.PhaseTime(); got != 0 {
		t.Errorf("without clients the phase lasts at most %d", got)
	}
	paused := State{RunState: Paused, Config: config}
	if got := paused.PhaseTime(); got != 0 {
		t.Errorf("a pause lasts %d at most", got)
	}
}
