package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/backend/tcp"
)

type runCreate struct {
	State          string `required:"" type:"path" placeholder:"FILE" help:"The state.toml of the run."`
	RunID          string `name:"run-id" placeholder:"ID" help:"Name of the run, in place of run_id in the file."`
	resumeFlags    `embed:""`
	authorityFlags `embed:""`
	connectFlags   `embed:""`
	signFlags      `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *runCreate) Help() string {
	return `The key that signs becomes the run's main authority: it alone configures, pauses and
closes the run. The server must allow it to begin runs (server run --allow-create).`
}

// Run begins a run on a server.
func (c *runCreate) Run(ctx context.Context, to console) error {
	run, err := loadNamedRun(c.State, c.RunID)
	if err != nil {
		return err
	}
	if err := c.apply(ctx, &run, to.out); err != nil {
		return err
	}
	key, err := c.key()
	if err != nil {
		return err
	}
	genesis, err := c.genesis(run, key.ID())
	if err != nil {
		return err
	}
	o, err := c.options(run.RunID, key, to.err)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := tcp.Create(ctx, o, genesis); err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "run %s is on %s, its main authority is %s\n", run.RunID, c.ServerAddr, key.ID())
	return err
}
