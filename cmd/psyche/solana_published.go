package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// solanaCommands are those of the original's program for a chain, under the names that its
// documentation gives them. Started as psyche-solana-client, psyche has them alone.
type solanaCommands struct {
	Train        solanaTrain     `cmd:"" passthrough:"" help:"Join a run and train: psyche-client train, which lies beside this program."`
	CreateRun    runCreate       `cmd:"" help:"Begin a run: psyche run create."`
	UpdateConfig runUpdateConfig `cmd:"" help:"Give a paused run rules: psyche run update-config."`
	SetPaused    runSetPaused    `cmd:"" help:"Pause a run, or let it go on: psyche run set-paused."`
	CloseRun     solanaCloseRun  `cmd:"" help:"End a run for good and get back what its account holds: psyche run close --free."`
	Tick         runTick         `cmd:"" help:"Move a run on, if that is due: psyche run tick."`
	JSONDumpRun  solanaDump      `cmd:"" name:"json-dump-run" help:"Print the state of a run: psyche run status --json."`
	ListRuns     chainRuns       `cmd:"" help:"Show the runs of a program: psyche run list."`

	JoinAuthorizationCreate   grantCreate   `cmd:"" help:"Admit a key to a permissioned run: psyche run authorize."`
	JoinAuthorizationRead     grantRead     `cmd:"" help:"Show whether a key may join a run, and who may in its name."`
	JoinAuthorizationDelegate grantDelegate `cmd:"" help:"Name the keys that may join in the name of an authorized one: psyche run set-delegates."`
	JoinAuthorizationDelete   grantDelete   `cmd:"" help:"End an authorization: psyche run authorize --revoke."`

	PrintAllHelp allHelp `cmd:"" hidden:"" help:"Print the help of these commands."`
}

// solanaTrain hands its command line to psyche-client.
type solanaTrain struct {
	Args []string `arg:"" optional:"" help:"What psyche-client train takes."`
}

// Run becomes psyche-client.
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
		return fmt.Errorf("%s is not there: it trains; build it with: make build", client)
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
