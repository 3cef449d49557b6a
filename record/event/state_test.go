package event_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

// TestStateOf checks a round of five members, one of them on probation, and before it a run without
// members.
func TestStateOf(t *testing.T) {
	s := &coordinator.State{RunState: coordinator.WaitingForMembers, Config: coordinator.Config{TotalSteps: 9, VerificationPercent: 40}}
	s.Pending = make([]coordinator.Client, 2)
	want := event.State{RunState: "WaitingForMembers", Members: []string{}, Elected: []string{}, Pending: 2, TotalSteps: 9}
	if got := event.StateOf(s); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	round := coordinator.Round{Step: 3, Seed: 11, BatchSeed: 12, Position: 20, BatchSize: 10, WitnessesNeeded: 4, Witnesses: make([]coordinator.Witness, 2)}
	round.Warming[0] = 1 << 2
	var names []string
	for n := range byte(5) {
		id := coordinator.ClientID{n + 1}
		round.Members = append(round.Members, id)
		names = append(names, identity.ID(id).String())
		s.Epoch.Clients = append(s.Epoch.Clients, coordinator.Client{ID: id})
	}
	s.Epoch.Clients[4].State = coordinator.Dropped
	s.RunState, s.Progress.Step, s.Epoch.Rounds = coordinator.RoundTrain, 3, []coordinator.Round{round}
	s.Config.MaxRoundTrainTime = 30_000
	s.Model.Checkpoint.Digest = [32]byte{0xab}
	got := event.StateOf(s)
	if len(got.Elected) != 5 {
		t.Errorf("witnesses %q, want all five members", got.Elected)
	}
	if len(got.Idle) != 2 {
		t.Errorf("without a batch are %q, want two of five", got.Idle)
	}
	for _, batch := range round.Assignments(s.Config) {
		if slices.Contains(got.Idle, names[batch.Member]) {
			t.Errorf("%s has batch %v, and is listed without a batch", names[batch.Member], batch.Batch)
		}
	}
	got.Elected, got.Idle = nil, nil
	want = event.State{
		RunState: "RoundTrain", Step: 3, Members: names[:4], Witnesses: 2, Quorum: 4, Pending: 2, BatchSize: 10, DataIndex: 20, TotalSteps: 9,
		Batches: 3, Uncounted: names[2:3], Limit: got.Limit, Digest: "ab00000000000000000000000000000000000000000000000000000000000000",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Limit != 30 {
		t.Errorf("the phase lasts %v s", got.Limit)
	}
}

// TestShownStep checks that every phase shows the number of the running round, or of the last round that has ended.
func TestShownStep(t *testing.T) {
	for _, c := range []struct {
		state string
		step  uint32
		total uint32
		want  uint32
	}{
		{"", 0, 0, 0},
		{"WaitingForMembers", 1, 40, 0},
		{"Warmup", 1, 40, 0},
		{"RoundTrain", 1, 40, 1},
		{"RoundWitness", 16, 40, 16},
		{"Cooldown", 17, 40, 16},
		{"Paused", 17, 40, 16},
		{"Warmup", 17, 40, 16},
		{"Finished", 41, 40, 40},
		{"RoundTrain", 17, 0, 17},
	} {
		if got := (event.State{RunState: c.state, Step: c.step, TotalSteps: c.total}).ShownStep(); got != c.want {
			t.Errorf("%s, step %d of %d: %d is shown, want %d", c.state, c.step, c.total, got, c.want)
		}
	}
}

// TestStateOfPause checks that an event contains a pause that has not begun, and the number of clients that an epoch
// needs while the run waits for them.
func TestStateOfPause(t *testing.T) {
	s := &coordinator.State{RunState: coordinator.WaitingForMembers, PendingPause: true, Config: coordinator.Config{InitMinClients: 3}}
	if got := event.StateOf(s); !got.Pausing || got.Needed != 3 {
		t.Errorf("got %+v; want got.Pausing and got.Needed == 3", got)
	}
	s.RunState = coordinator.Warmup
	if got := event.StateOf(s); got.Needed != 0 {
		t.Errorf("in Warmup: %+v", got)
	}
}
