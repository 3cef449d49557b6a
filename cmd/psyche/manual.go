package main

import (
	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/cmd/internal/manual"
	"github.com/psyche-go/psyche/cmd/internal/published"
)

// allHelp prints the help of all commands, or of those of its group.
type allHelp struct {
	published.Manual `embed:""`
}

// Run writes the pages.
func (c *allHelp) Run(to console, line *kong.Context) error {
	if group := line.Selected().Parent; group != nil && group.Type == kong.CommandNode {
		return c.Write(to.out, line, group.Name)
	}
	return c.Write(to.out, line)
}

type completion struct {
	manual.Completion `embed:""`
}

// Run prints the completions.
func (c *completion) Run(to console, line *kong.Context) error { return c.Write(to.out, line) }

type manPage struct {
	manual.Man `embed:""`
}

// Run prints the man page.
func (c *manPage) Run(to console, line *kong.Context) error { return c.Write(to.out, line) }
