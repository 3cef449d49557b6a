package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/config"
)

type runUpdateConfig struct {
	State      string `required:"" aliases:"config-path" type:"path" placeholder:"FILE" help:"The state.toml with the new rules and model."`
	shownFlags `embed:""`
	actFlags   `embed:""`
	agreeFlags `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runUpdateConfig) Help() string {
	return `The run must be paused. Progress and members are kept. The checkpoint is kept if the file names the
run's initial checkpoint. Name and description come from the file or the flags. The main authority
signs. If a run on a chain has only an account, this command creates the run, paused.`
}

// Run gives a paused run new rules.
func (c *runUpdateConfig) Run(ctx context.Context, to console) error {
	run, err := loadRun(c.State, c.RunID)
	if err != nil {
		return err
	}
	if err := c.describe(&run.Model); err != nil {
		return err
	}
	state, err := run.CoordinatorState(coordinator.ClientID{})
	if err != nil {
		return configError{fmt.Errorf("%s: %w", c.State, err)}
	}
	if begun, err := c.beginOnChain(ctx, to, run); err != nil || begun {
		return err
	}
	if err := c.submit(ctx, to, coordinator.UpdateConfig{Config: state.Config, Model: state.Model}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "run %s now uses the configuration in %s\n", c.RunID, c.State)
	return err
}

// beginOnChain starts a run if the chain has only its account, and reports whether it did.
func (c *runUpdateConfig) beginOnChain(ctx context.Context, to console, run config.Run) (bool, error) {
	if isChain, err := c.onChain(); err != nil || !isChain {
		return false, err
	}
	chain, err := c.open(to.err)
	if err != nil {
		return false, err
	}
	defer chain.Close()
	ctx, cancel := c.bound(ctx)
	defer cancel()
	program, err := c.Program()
	if err != nil {
		return false, usageError{err}
	}
	begun, err := chain.HasBegun(ctx, program, c.RunID)
	if err != nil || begun {
		return false, err
	}
	create := runCreate{State: c.State, RunID: c.RunID, shownFlags: c.shownFlags, hostFlags: c.hostFlags, signFlags: c.signFlags, agreeFlags: c.agreeFlags}
	return true, create.Run(ctx, to)
}
