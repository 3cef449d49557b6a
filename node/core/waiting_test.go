package core

import (
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// TestWaitingIsNoSpam changes the reason for waiting much faster than it is reported.
func TestWaitingIsNoSpam(t *testing.T) {
	m, now, said := New(Options{ID: me}), time.Unix(1000, 0), 0
	for i := range 1000 {
		s := &coordinator.State{RunState: coordinator.WaitingForMembers, Pending: []coordinator.Client{{ID: me}}, Config: coordinator.Config{InitMinClients: 9}}
		if i%2 == 0 {
			s.Pending = append(s.Pending, coordinator.Client{ID: coordinator.ClientID{1}})
		}
		m.Step(now, Seen{s})
		m.Step(now, Look{})
		said += len(m.Ready().Report)
		m.Advance()
		now = now.Add(10 * time.Millisecond)
	}
	if said < 5 || said > 11 {
		t.Errorf("%d reports in 10 seconds", said)
	}
}

// TestWaitsUntilTheEpochEnds checks that a client that waits for an epoch knows when the running one ends, if time
// ends it.
func TestWaitsUntilTheEpochEnds(t *testing.T) {
	state := &coordinator.State{RunState: coordinator.RoundTrain, Pending: []coordinator.Client{{ID: me}}}
	state.Epoch.StartTime = 1_000
	for epochTime, want := range map[uint64]uint64{0: 0, 60_000: 61_000} {
		state.Config.EpochTime = epochTime
		c := common{Options: Options{ID: me}, state: state}
		if got := c.waitsFor(); got != (Waiting{Reason: ForEpoch, Until: want}) {
			t.Errorf("epoch_time %d: %+v, want until %d", epochTime, got, want)
		}
	}
}
