package main

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/psyche-go/psyche/server/status"
)

type runStatus struct {
	RunID     string `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"The run."`
	JSON      bool   `name:"json" help:"Print everything, as JSON."`
	hostFlags `embed:""`
}

// Run shows how far a run is.
func (c *runStatus) Run(ctx context.Context, to console) error {
	state, err := c.look(ctx, c.RunID, to.err)
	if err != nil {
		return err
	}
	run := status.Of(state)
	if !c.JSON {
		return run.Print(to.out, time.Now())
	}
	return printJSON(to.out, run)
}

func printJSON(to io.Writer, value any) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
