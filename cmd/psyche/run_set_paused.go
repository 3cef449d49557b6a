package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

type runSetPaused struct {
	Paused   string `arg:"" name:"paused" enum:"true,false,pause,resume" default:"true" help:"true or pause to pause, false or resume to resume (${default})."`
	Resume   bool   `help:"Resume the run: the same as false."`
	actFlags `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runSetPaused) Help() string {
	return `A run that trains pauses at the end of the epoch, after its checkpoint; psyche run status shows when.
The main authority signs.`
}

// Run pauses or resumes a run.
func (c *runSetPaused) Run(ctx context.Context, to console) error {
	paused := (c.Paused == "true" || c.Paused == "pause") && !c.Resume
	if err := c.submit(ctx, to, coordinator.SetPaused{Paused: paused}); err != nil {
		return err
	}
	outcome := "resumes"
	if paused {
		outcome = "pauses as soon as its epoch allows"
	}
	_, err := fmt.Fprintf(to.out, "run %s %s\n", c.RunID, outcome)
	return err
}
