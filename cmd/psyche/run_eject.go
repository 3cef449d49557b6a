package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

type runEject struct {
	Client   string `arg:"" name:"key" help:"Key of the client, in base58."`
	actFlags `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *runEject) Help() string {
	return `A client that waits is removed at once, a member at the end of the running round. It cannot
join before the epoch after the next. The main authority signs.`
}

// Run removes a client from a run.
func (c *runEject) Run(ctx context.Context, to console) error {
	client, err := identity.ParseID(c.Client)
	if err != nil {
		return err
	}
	if err := c.submit(ctx, to, coordinator.Eject{Client: coordinator.ClientID(client)}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "%s is ejected from run %s\n", client, c.RunID)
	return err
}
