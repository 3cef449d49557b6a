package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/coordinator"
)

type runUpdateConfig struct {
	State    string `required:"" aliases:"config-path" type:"path" placeholder:"FILE" help:"A state.toml with the new rules and model."`
	actFlags `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *runUpdateConfig) Help() string {
	return `The run must be paused. Progress and members are kept; so is the checkpoint, if the file
names the one that the run began with. The main authority signs.`
}

// Run gives a paused run new rules.
func (c *runUpdateConfig) Run(ctx context.Context, to console) error {
	run, err := loadRun(c.State, c.RunID)
	if err != nil {
		return err
	}
	state, err := run.CoordinatorState(coordinator.ClientID{})
	if err != nil {
		return configError{fmt.Errorf("%s: %w", c.State, err)}
	}
	if err := c.submit(ctx, to, coordinator.UpdateConfig{Config: state.Config, Model: state.Model}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "run %s has the rules of %s\n", c.RunID, c.State)
	return err
}
