package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
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

// grantFlags name an authorization. Here it belongs to one run, not to all of a join authority.
type grantFlags struct {
	Authorizer    string `placeholder:"KEY|FILE" help:"Key that may join, in base58 or as a key file."`
	JoinAuthority string `placeholder:"KEY" help:"Changes nothing: the run knows its join authority."`
}

// grantee reads the key that may join.
func (f *grantFlags) grantee() (identity.ID, error) {
	if f.Authorizer == "" {
		return identity.ID{}, usagef("missing flags: --authorizer=KEY")
	}
	return keyOrFile(f.Authorizer)
}

type grantCreate struct {
	grantFlags `embed:""`
	actFlags   `embed:""`
}

// Run admits the key.
func (c *grantCreate) Run(ctx context.Context, to console) error {
	return grant(ctx, to, &c.grantFlags, c.actFlags, false)
}

type grantDelete struct {
	grantFlags `embed:""`
	actFlags   `embed:""`
}

// Run ends the authorization.
func (c *grantDelete) Run(ctx context.Context, to console) error {
	return grant(ctx, to, &c.grantFlags, c.actFlags, true)
}

func grant(ctx context.Context, to console, f *grantFlags, act actFlags, revoke bool) error {
	grantee, err := f.grantee()
	if err != nil {
		return err
	}
	authorize := runAuthorize{Grantee: grantee.String(), Revoke: revoke, actFlags: act}
	return authorize.Run(ctx, to)
}

type grantRead struct {
	grantFlags `embed:""`
	RunID      string `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"The run."`
	hostFlags  `embed:""`
}

// Run prints the authorization.
func (c *grantRead) Run(ctx context.Context, to console) error {
	grantee, err := c.grantee()
	if err != nil {
		return err
	}
	state, err := c.look(ctx, c.RunID, to.err)
	if err != nil {
		return err
	}
	own, ok := state.Authority.Authorization(coordinator.ClientID(grantee))
	switch {
	case !state.Authority.Permissioned:
		_, err = fmt.Fprintf(to.out, "run %s admits every key\n", c.RunID)
	case !ok:
		return refusal{fmt.Sprintf("%s may not join run %s", grantee, c.RunID), coordinator.ErrNotAuthorised}
	default:
		var names []string
		for _, id := range own.Delegates {
			names = append(names, identity.ID(id).String())
		}
		_, err = fmt.Fprintf(to.out, "%s may join run %s, and %d keys in its name: %s\n", grantee, c.RunID, len(names), strings.Join(names, " "))
	}
	return err
}

type grantDelegate struct {
	JoinAuthority  string   `placeholder:"KEY" help:"Changes nothing: the run knows its join authority."`
	DelegatesClear bool     `help:"Forget those that were named before."`
	DelegatesAdded []string `sep:"," placeholder:"KEY|FILE,…" help:"Keys that may join, in base58 or as key files."`
	actFlags       `embed:""`
}

// Run changes the delegates of the key that signs.
func (c *grantDelegate) Run(ctx context.Context, to console) error {
	var delegates []string
	if !c.DelegatesClear {
		key, err := c.key(c.Given())
		if err != nil {
			return err
		}
		state, err := c.look(ctx, c.RunID, to.err)
		if err != nil {
			return err
		}
		own, _ := state.Authority.Authorization(coordinator.ClientID(key.ID()))
		for _, id := range own.Delegates {
			delegates = append(delegates, identity.ID(id).String())
		}
	}
	for _, text := range c.DelegatesAdded {
		id, err := keyOrFile(text)
		if err != nil {
			return err
		}
		if !slices.Contains(delegates, id.String()) {
			delegates = append(delegates, id.String())
		}
	}
	set := runSetDelegates{Delegates: delegates, actFlags: c.actFlags}
	return set.Run(ctx, to)
}
