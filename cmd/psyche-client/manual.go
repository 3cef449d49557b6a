package main

import (
	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/cmd/internal/manual"
)

type completionCommand struct {
	manual.Completion `embed:""`
}

// Run prints the completions.
func (c *completionCommand) Run(t terminal, line *kong.Context) error { return c.Write(t.Out, line) }

type manPageCommand struct {
	manual.Man `embed:""`
}

// Run prints the man page.
func (c *manPageCommand) Run(t terminal, line *kong.Context) error { return c.Write(t.Out, line) }
