package main

import (
	"cmp"
	"fmt"

	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/coordinator"
)

type serverValidateConfig struct {
	State      string `required:"" placeholder:"FILE" help:"The state.toml to check."`
	DataConfig string `placeholder:"FILE" help:"A data.toml to check as well."`
	RunID      string `name:"run-id" placeholder:"ID" help:"Name of the run, if the file does not give one."`
}

// Run checks the files and says what they describe.
func (c serverValidateConfig) Run(to console) error {
	run, err := loadRun(c.State, c.RunID)
	if err != nil {
		return err
	}
	// The file alone is valid without a name, so the check needs some name.
	named := run
	named.RunID = cmp.Or(run.RunID, "unnamed")
	if _, err := named.CoordinatorState(coordinator.ClientID{}); err != nil {
		return configError{fmt.Errorf("%s: %w", c.State, err)}
	}
	if c.DataConfig != "" {
		if _, err := config.LoadDataServer(c.DataConfig); err != nil {
			return configError{err}
		}
	}
	for _, warning := range run.Warnings {
		if _, err := fmt.Fprintf(to.err, "%s: warning: %s\n", c.State, warning); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(to.out, "%s is valid: run %s, %s, %d steps of %d to %d sequences of %d tokens\n",
		c.State, cmp.Or(run.RunID, "(name it with --run-id)"), run.Model.Architecture, run.Config.TotalSteps,
		run.Config.GlobalBatchSizeStart, run.Config.GlobalBatchSizeEnd, run.Model.MaxSeqLen)
	if err == nil && c.DataConfig != "" {
		_, err = fmt.Fprintf(to.out, "%s is valid\n", c.DataConfig)
	}
	return err
}

// loadRun reads a state.toml; runID, if any, replaces the name in it.
func loadRun(state, runID string) (config.Run, error) {
	run, err := config.LoadState(state)
	if err != nil {
		return config.Run{}, configError{err}
	}
	run.RunID = cmp.Or(runID, run.RunID)
	if len(run.RunID) > coordinator.MaxRunIDLength {
		return config.Run{}, fmt.Errorf("--run-id has %d bytes, at most %d fit", len(run.RunID), coordinator.MaxRunIDLength)
	}
	return run, nil
}
