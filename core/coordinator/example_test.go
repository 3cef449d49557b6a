package coordinator_test

import (
	"fmt"
	"log"

	"github.com/psyche-go/psyche/core/coordinator"
)

// A run of two members, from their joins to its first round. Time and draws are arguments, so the
// same calls give the same state everywhere.
func Example() {
	host := coordinator.ClientID{9}
	state, err := coordinator.New("example", host, coordinator.Config{
		WarmupTime: 60_000, CooldownTime: 60_000, RoundsPerEpoch: 4, MaxRoundTrainTime: 60_000, RoundWitnessTime: 1000, WaitingForMembersExtraTime: 1000,
		GlobalBatchSizeStart: 64, GlobalBatchSizeEnd: 64, TotalSteps: 8, InitMinClients: 2, MinClients: 1,
	}, coordinator.Model{MaxSeqLen: 16, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}})
	if err != nil {
		log.Fatal(err)
	}
	apply := func(member byte, nonce uint64, action coordinator.Action) {
		if err := state.Apply(coordinator.ClientID{member}, nonce, action); err != nil {
			log.Fatal(err)
		}
	}
	now := uint64(1_000_000) // Unix milliseconds
	tick := func(pause uint64, draw [32]byte) {
		now += pause
		if state.Tick(now, draw) {
			fmt.Println(state.RunState)
		}
	}

	apply(1, 1, coordinator.Join{})
	apply(2, 1, coordinator.Join{})
	tick(0, [32]byte{})
	tick(1000, [32]byte{})
	apply(1, 2, coordinator.Ready{})
	apply(2, 2, coordinator.Ready{})
	tick(5000, [32]byte{42})

	round := state.Epoch.Rounds[0]
	fmt.Printf("round of step %d, %d members, %d sequences\n", round.Step, len(round.Members), round.BatchSize)
	fmt.Println("refused:", state.Apply(coordinator.ClientID{1}, 2, coordinator.Withdraw{}))

	// Output:
	// WaitingForMembers
	// Warmup
	// RoundTrain
	// round of step 1, 2 members, 64 sequences
	// refused: nonce is not above the last one
}
