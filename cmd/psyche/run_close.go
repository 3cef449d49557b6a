package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

type runClose struct {
	Free     bool `help:"On a chain: also recover the SOL in the run's account, as psyche run free does."`
	actFlags `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runClose) Help() string {
	return `The run must be paused or finished. After this command, the run cannot be changed. Its log stays on
the server and can be exported. The main authority signs.`
}

// Run ends a run permanently.
func (c *runClose) Run(ctx context.Context, to console) error {
	if isChain, err := c.onChain(); err != nil || c.Free && !isChain {
		return firstOf(err, usagef("--free applies to runs on a chain only"))
	}
	if err := c.submit(ctx, to, coordinator.Close{}); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(to.out, "run %s is closed\n", c.RunID); err != nil || !c.Free {
		return err
	}
	free := runFree{chainRunFlags: chainRunFlags{RunID: c.RunID, hostFlags: c.hostFlags, signFlags: c.signFlags}, agreeFlags: agreeFlags{Yes: true}}
	return free.Run(ctx, to)
}
