package server_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// timedOptions returns the options of a run of two clients with changed rules. The host's beat is
// too slow to matter.
func timedOptions(change func(*coordinator.Config)) server.Options {
	o := options("")
	o.Beat = time.Hour
	o.Runs = []server.Genesis{func(host coordinator.ClientID) (coordinator.State, error) {
		s, err := backendtest.Genesis(runID, 2)(host)
		if err != nil {
			return s, err
		}
		change(&s.Config)
		return s, s.Check()
	}}
	return o
}

// TestTicksComeWhenDue checks that the passing of time moves a run through its phases.
func TestTicksComeWhenDue(t *testing.T) {
	var mu sync.Mutex
	began := map[coordinator.RunState]int64{} // host time in milliseconds
	var clock atomic.Int64
	o := timedOptions(func(c *coordinator.Config) {
		c.WaitingForMembersExtraTime, c.WarmupTime, c.MaxRoundTrainTime, c.RoundWitnessTime = 70, 130, 90, 50
	})
	o.Now = func() uint64 { clock.Store(time.Now().UnixMilli()); return uint64(clock.Load()) }
	o.OnEvent = func(e server.Event) {
		mu.Lock()
		defer mu.Unlock()
		if _, known := began[e.RunState]; e.Kind == server.EventTransition && !known {
			began[e.RunState] = clock.Load() // the host's latest reading caused the transition
		}
	}
	r := servertest.Start(t, o)
	a, b := dial(t, r.Address, 1), dial(t, r.Address, 2)
	submit(t, a, coordinator.Join{})
	submit(t, b, coordinator.Join{})
	await(t, a, "Cooldown", inState(coordinator.Cooldown))
	mu.Lock()
	defer mu.Unlock()
	for _, phase := range []struct {
		state, next coordinator.RunState
		lasts       int64
	}{
		{coordinator.Warmup, coordinator.RoundTrain, 130},
		{coordinator.RoundTrain, coordinator.RoundWitness, 90},
		{coordinator.RoundWitness, coordinator.Cooldown, 50},
	} {
		// A busy machine may be late, but never early.
		if lasted := began[phase.next] - began[phase.state]; lasted < phase.lasts || lasted > phase.lasts+2000 {
			t.Errorf("%v lasted %d ms, want %d", phase.state, lasted, phase.lasts)
		}
	}
}

// TestHostSleepsWhenNothingIsDue counts how often a run reads its clock.
func TestHostSleepsWhenNothingIsDue(t *testing.T) {
	var looks atomic.Int64
	o := timedOptions(func(*coordinator.Config) {})
	o.Now = func() uint64 { looks.Add(1); return uint64(time.Now().UnixMilli()) }
	r := servertest.Start(t, o)
	a := dial(t, r.Address, 1)
	submit(t, a, coordinator.Join{})
	await(t, a, "a pending client", func(s *coordinator.State) bool { return len(s.Pending) == 1 })
	time.Sleep(100 * time.Millisecond) // so that the pending update is published
	before := looks.Load()
	time.Sleep(300 * time.Millisecond) // in which a polling run would read its clock
	if more := looks.Load() - before; more > 2 {
		t.Errorf("the clock was read %d times in 300 ms without events", more)
	}
}

// TestClockThatIsSet sets the clock of a run forward, which ends Warmup, and then back. The round must
// last its full time from the second change, and the run must read the clock only rarely.
func TestClockThatIsSet(t *testing.T) {
	var set, looks atomic.Int64
	o := timedOptions(func(c *coordinator.Config) { c.WaitingForMembersExtraTime, c.MaxRoundTrainTime = 20, 600 })
	o.Beat = 20 * time.Millisecond
	o.Now = func() uint64 { looks.Add(1); return uint64(time.Now().UnixMilli() + set.Load()) }
	r := servertest.Start(t, o)
	a, b := dial(t, r.Address, 1), dial(t, r.Address, 2)
	submit(t, a, coordinator.Join{})
	submit(t, b, coordinator.Join{})
	await(t, a, "Warmup", inState(coordinator.Warmup))
	set.Store(3_600_000)
	await(t, a, "RoundTrain", inState(coordinator.RoundTrain))
	set.Store(-3_600_000)
	began, before := time.Now(), looks.Load()
	adjusted := await(t, a, "a time that was set back", func(s *coordinator.State) bool { return s.StateStart < uint64(time.Now().UnixMilli()) })
	if adjusted.State.RunState != coordinator.RoundTrain {
		t.Fatalf("setting the clock back led to %v", adjusted.State.RunState)
	}
	await(t, a, "the end of the round", func(s *coordinator.State) bool { return s.RunState != coordinator.RoundTrain })
	if lasted := time.Since(began); lasted < 550*time.Millisecond {
		t.Errorf("the round ended %v after the clock was set back, want 600 ms", lasted)
	}
	if n := looks.Load() - before; n > 400 {
		t.Errorf("the clock was read %d times in one round", n)
	}
}

// TestPhasesOfOneStepAreShownOnce lets the last witness of a round end it. It checks that clients
// receive only the next round.
func TestPhasesOfOneStepAreShownOnce(t *testing.T) {
	var mu sync.Mutex
	var seen, passed []coordinator.RunState
	o := timedOptions(func(c *coordinator.Config) { c.WaitingForMembersExtraTime, c.RoundWitnessTime = 20, 60_000 })
	o.OnState = func(s *coordinator.State) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, s.RunState)
	}
	o.OnEvent = func(e server.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == server.EventTransition {
			passed = append(passed, e.RunState)
		}
	}
	r := servertest.Start(t, o)
	clients := []*fakeClient{}
	for n := range byte(2) {
		clients = append(clients, &fakeClient{backend: dial(t, r.Address, n+1), id: coordinator.ClientID(backendtest.Key(n + 1).ID())})
	}
	var working sync.WaitGroup
	for _, c := range clients {
		working.Go(func() { c.run(t) })
	}
	working.Wait() // the run is finished
	r.Stop()
	mu.Lock()
	defer mu.Unlock()
	if slices.Contains(seen, coordinator.RoundWitness) {
		// A quorum of two needs both witnesses, so the round never waits in RoundWitness.
		t.Errorf("RoundWitness was published: %v", seen)
	}
	rounds := 0
	for i, state := range passed {
		if state == coordinator.RoundWitness {
			rounds++
			if next := passed[i+1]; next != coordinator.RoundTrain && next != coordinator.Cooldown {
				t.Errorf("%v follows RoundWitness", next)
			}
		}
	}
	if rounds != 8 {
		t.Errorf("%d rounds went through RoundWitness, want 8: %v", rounds, passed)
	}
}

func inState(state coordinator.RunState) func(*coordinator.State) bool {
	return func(s *coordinator.State) bool { return s.RunState == state }
}
