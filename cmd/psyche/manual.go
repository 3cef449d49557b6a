package main

import (
	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/cmd/internal/published"
)

// manual prints the help of all commands, or of those of its group.
type manual struct {
	published.Manual `embed:""`
}

// Run writes the pages.
func (c *manual) Run(to console, line *kong.Context) error {
	if group := line.Selected().Parent; group != nil && group.Type == kong.CommandNode {
		return c.Write(to.out, line, group.Name)
	}
	return c.Write(to.out, line)
}
