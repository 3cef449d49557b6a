package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/coordinator"
)

type runClose struct {
	actFlags `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *runClose) Help() string {
	return `The run must be paused or finished. Nobody can change it any more; its log stays on the
server and can be exported. The main authority signs.`
}

// Run ends a run for good.
func (c *runClose) Run(ctx context.Context, to console) error {
	if err := c.submit(ctx, to, coordinator.Close{}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to.out, "run %s is closed\n", c.RunID)
	return err
}
