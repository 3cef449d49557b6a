package config

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// CoordinatorState returns the first state of the run's coordinator. host is the key that ticks it.
func (r Run) CoordinatorState(host coordinator.ClientID) (coordinator.State, error) {
	definition, err := EncodeModel(r.Model)
	if err != nil {
		return coordinator.State{}, err
	}
	state, err := coordinator.Genesis{RunID: r.RunID, Host: host, Config: r.Config, Progress: r.Progress, Model: coordinator.Model{
		MaxSeqLen:            r.Model.MaxSeqLen,
		ColdStartWarmupSteps: r.Model.ColdStartWarmupSteps,
		Checkpoint:           r.Model.Checkpoint.coordinator(),
		Definition:           definition,
	}}.State()
	if err != nil {
		return coordinator.State{}, fmt.Errorf("start run %q: %w", r.RunID, err)
	}
	return state, nil
}
