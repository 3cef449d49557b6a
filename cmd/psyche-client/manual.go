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
		{Path: "~/.local/state/psyche/identity.json", Holds: "The member's key, which join creates at the first start; under XDG_STATE_HOME if that is set. A copy of it allows its holder to act as the member."},
		{Path: "~/.local/state/psyche/runs", Holds: "Checkpoints of joined runs, one folder per run; train uses --checkpoint-dir."},
		{Path: "~/.config/psyche/known_servers", Holds: "Keys of known servers (see --known-servers); under XDG_CONFIG_HOME if that is set."},
		{Path: "~/.cache/huggingface/hub", Holds: "Models of the Hugging Face Hub, shared with other programs; HF_HUB_CACHE, HF_HOME and XDG_CACHE_HOME change the location."},
	})
}
