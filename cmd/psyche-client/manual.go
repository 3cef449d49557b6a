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
func (c *manPageCommand) Run(t terminal, line *kong.Context) error {
	return c.Write(t.Out, line, []manual.File{
		{Path: "~/.local/state/psyche/identity.json", Holds: "The key of this member that join makes at the first start; under XDG_STATE_HOME if that is set. Whoever has a copy can act as the member."},
		{Path: "~/.local/state/psyche/runs", Holds: "Checkpoints of the runs that were joined, a folder for each; train has --checkpoint-dir."},
		{Path: "~/.config/psyche/known_servers", Holds: "The keys of servers that were seen, as --known-servers; under XDG_CONFIG_HOME if that is set."},
		{Path: "~/.cache/huggingface/hub", Holds: "Models of the Hugging Face Hub, which other programs share; HF_HUB_CACHE, HF_HOME and XDG_CACHE_HOME change that."},
	})
}
