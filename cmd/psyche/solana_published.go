package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// solanaCommands are the commands of the original Psyche's program for a chain, under their documented
// names. If psyche is started as psyche-solana-client, it has only these commands.
type solanaCommands struct {
	Train        solanaTrain     `cmd:"" passthrough:"" help:"Join a run and train: psyche-client train, from the folder of this program."`
	CreateRun    runCreate       `cmd:"" help:"Create a run: psyche run create."`
	UpdateConfig runUpdateConfig `cmd:"" help:"Change the configuration of a paused run: psyche run update-config."`
	SetPaused    runSetPaused    `cmd:"" help:"Pause or resume a run: psyche run set-paused."`
	CloseRun     solanaCloseRun  `cmd:"" help:"Close a run permanently and recover the SOL in its account: psyche run close --free."`
	Tick         runTick         `cmd:"" help:"Advance a run if a tick is due: psyche run tick."`
	JSONDumpRun  solanaDump      `cmd:"" name:"json-dump-run" help:"Print the state of a run: psyche run status --json."`
	ListRuns     chainRuns       `cmd:"" help:"Show the runs of a program: psyche run list."`

	JoinAuthorizationCreate   grantCreate   `cmd:"" help:"Admit a key to all permissioned runs of a join authority, or to one run: psyche run authorize."`
	JoinAuthorizationRead     grantRead     `cmd:"" help:"Show whether a key may join all runs of a join authority or one run, and its delegates."`
	JoinAuthorizationDelegate grantDelegate `cmd:"" help:"Set the keys that may join on behalf of an authorized key; in one run: psyche run set-delegates."`
	JoinAuthorizationDelete   grantDelete   `cmd:"" help:"Revoke an authorization; in one run: psyche run authorize --revoke."`

	PrintAllHelp allHelp `cmd:"" hidden:"" help:"Print the help of these commands."`
}

// solanaTrain passes its command line to psyche-client.
type solanaTrain struct {
	Args []string `arg:"" optional:"" help:"Arguments of psyche-client train."`
}

// Run replaces this process with psyche-client.
func (c *solanaTrain) Run() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if resolved, err := filepath.EvalSymlinks(self); err == nil {
		self = resolved
	}
	client := filepath.Join(filepath.Dir(self), "psyche-client")
	if _, err := os.Stat(client); err != nil {
		return fmt.Errorf("%s not found; it is needed for training; build it with: make build", client)
	}
	return become(client, append([]string{"train"}, c.Args...))
}

type solanaCloseRun struct {
	runClose `embed:""`
}

// Run closes the run and frees its account.
func (c *solanaCloseRun) Run(ctx context.Context, to console) error {
	c.Free = true
	return c.runClose.Run(ctx, to)
}

type solanaDump struct {
	runStatus `embed:""`
}

// Run prints the run's state as JSON.
func (c *solanaDump) Run(ctx context.Context, to console) error {
	c.JSON = true
	return c.runStatus.Run(ctx, to)
}
