package coordinator

import (
	"testing"

	"pgregory.net/rapid"
)

// TestWaitsLastMilliseconds checks that a wait ends exactly in the millisecond in which its time is
// over. A wait of zero ends in the next millisecond.
func TestWaitsLastMilliseconds(t *testing.T) {
	for _, test := range []struct {
		start, now, wait uint64
		over             bool
	}{
		{1000, 1000, 0, false}, {1000, 1001, 0, true}, {1000, 1001, 1, true},
		{1000, 1199, 200, false}, {1000, 1200, 200, true},
		{1000, 900, 0, false}, {1000, 0, MaxTime, false},
		{1<<64 - 1, 1<<64 - 1, 0, false}, {1<<64 - 2, 1<<64 - 1, 1, true}, {0, 1<<64 - 1, MaxTime, true},
	} {
		if got := elapsed(test.start, test.now, test.wait); got != test.over {
			t.Errorf("a wait of %d ms from %d on is over at %d: %t", test.wait, test.start, test.now, got)
		}
	}
}

// TestRunWithAClockOfWholeSeconds plays a run whose times have fractions of seconds with a clock of
// whole seconds, like a chain's clock. It checks that every wait lasts at least its time and ends
// within the same second, and that the run finishes.
func TestRunWithAClockOfWholeSeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := testConfig()
		someTime := rapid.Uint64Range(1, 7000)
		config.TotalSteps, config.InitMinClients = 4, 2
		config.RoundWitnessTime, config.MaxRoundTrainTime = someTime.Draw(t, "witness time"), someTime.Draw(t, "train time")
		config.CooldownTime, config.WaitingForMembersExtraTime = someTime.Draw(t, "cooldown time"), someTime.Draw(t, "extra time")
		config.WarmupTime = someTime.Draw(t, "warmup time")
		state, err := New("walk", host, config, testModel())
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"a", "b", "c"} {
			if err := state.Apply(clientID(name), uint64(i)+1, Join{}); err != nil {
				t.Fatal(err)
			}
		}
		waits := map[RunState]uint64{
			Warmup: config.WarmupTime, RoundTrain: config.MaxRoundTrainTime, RoundWitness: config.RoundWitnessTime, Cooldown: config.CooldownTime,
		}
		nonce := uint64(10)
		for now := uint64(1_700_000_000 * second); state.RunState != Finished; now += second {
			if now > 1_700_001_000*second {
				t.Fatalf("not finished:\n%s", state.String())
			}
			if rapid.Bool().Draw(t, "act") {
				id := clientID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "client"))
				if a := honestAction(&state, id); a != nil {
					nonce++
					_ = state.Apply(id, nonce, a) // an action that is not allowed now is refused
				}
			}
			for range int(Paused) {
				phase, since := state.RunState, state.StateStart
				if !state.Tick(now, testDraw(now)) {
					break
				}
				if now-since >= waits[phase]+2*second && waits[phase] > 0 {
					t.Fatalf("%s of %d ms lasted %d ms", phase, waits[phase], now-since)
				}
				if state.StateStart%second != 0 {
					t.Fatalf("%s begins at %d", state.RunState, state.StateStart)
				}
			}
		}
	})
}

func TestTimesAreWrittenInSeconds(t *testing.T) {
	for ms, want := range map[uint64]string{0: "0", 1: "0.001", 200: "0.2", 1050: "1.05", 30_000: "30", 1_700_000_000_120: "1700000000.12"} {
		if got := seconds(ms); got != want {
			t.Errorf("%d ms are written as %s, want %s", ms, got, want)
		}
	}
}
