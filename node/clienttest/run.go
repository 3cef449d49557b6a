package clienttest

import (
	"context"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/host/memory"
)

// RunID is the ID of the run in tests.
const RunID = "test-run"

// Key returns the key of client n.
func Key(n int) identity.Key { return identity.FromSeed([identity.SeedSize]byte{byte(n), 77}) }

// Config returns the configuration of a run of three epochs of three rounds.
func Config(clients uint16) coordinator.Config {
	return coordinator.Config{
		WarmupTime: 30_000, CooldownTime: 30_000, RoundsPerEpoch: 3, MaxRoundTrainTime: 20_000, RoundWitnessTime: 1000,
		WaitingForMembersExtraTime: 1000, GlobalBatchSizeStart: 12, GlobalBatchSizeEnd: 12, TotalSteps: 9,
		InitMinClients: clients, MinClients: 1,
	}
}

// Host starts the run of tests on the clock now. Most tests leave the model's definition empty.
func Host(t testing.TB, config coordinator.Config, now func() uint64, definition ...byte) *memory.Host {
	t.Helper()
	host, err := memory.NewHost(memory.Options{
		Genesis: func(id coordinator.ClientID) (coordinator.State, error) {
			return coordinator.New(RunID, id, config, coordinator.Model{
				MaxSeqLen: 2, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}, Definition: definition,
			})
		},
		Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// Data is an env.DataProvider that generates sequences from their indices.
type Data struct {
	Err func(batch assign.BatchID) error // error of a batch; nil: no errors
}

// Batch implements env.DataProvider.
func (d Data) Batch(_ context.Context, batch assign.BatchID) (data.Batch, error) {
	if d.Err != nil {
		if err := d.Err(batch); err != nil {
			return data.Batch{}, err
		}
	}
	var sequences [][]int32
	for i := batch.Start; i < batch.End; i++ {
		sequences = append(sequences, []int32{int32(i), int32(i + 1), int32(i + 2)})
	}
	return data.Batch{ID: batch, Sequences: sequences}, nil
}
