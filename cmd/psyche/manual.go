package main

import (
	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/cmd/internal/manual"
	"github.com/psyche-go/psyche/cmd/internal/published"
)

// allHelp prints the help of all commands, or of the commands in its group.
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
func (c *manPage) Run(to console, line *kong.Context) error {
	return c.Write(to.out, line, []manual.File{
		{Path: "~/.config/psyche/known_servers", Holds: "Keys of known servers (see --known-servers); under XDG_CONFIG_HOME if that is set."},
		{Path: "STATE_DIR/host-key.json, STATE_DIR/RUN.journal", Holds: "The key of a server and the log of each of its runs, in the folder of server run --save-state-dir. Without these files the run is lost; keep the key secret."},
		{Path: "state.toml, data.toml", Holds: "The configuration of a run and of a data server, as server validate-config checks them."},
		{Path: "runs/RUN-TIME", Holds: "Files from testnet start: summary.json, logs, event logs, keys and checkpoints."},
	})
}
