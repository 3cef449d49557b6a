package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/invite"
	"github.com/psyche-go/psyche/record/wire"
)

// joinCommand joins the run of an invite link.
type joinCommand struct {
	Link string `arg:"" placeholder:"LINK" help:"Invite link, as printed by psyche run invite and by the run's server: 'psyche://HOST:PORT/RUN?key=…&genesis=…', or 'psyche+solana://…' for a run on a chain, in quotes."`

	Ephemeral     bool          `help:"Use a new key, save no checkpoints, and keep only files that other flags request." group:"Your key:"`
	ServerTimeout time.Duration `help:"Time limit for the first connection to the server." default:"30s" group:"The run:"`

	programFlags `embed:"" group:"A run on a chain:"`
	memberFlags  `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *joinCommand) Help() string {
	return `Works like psyche-client train. The link sets the server's address, the key that the server must
prove, the run, and the hash that the run must have.

The member's key is created at the first start and reused later. It is psyche/identity.json in
XDG_STATE_HOME or in ~/.local/state; checkpoints go to psyche/runs in the same folder. On a chain,
this key pays for the client's transactions. The client refuses a program that this version does
not know, because a program can take everything in the key's account.

If only the run's host has the model, the client gets it from the run's server or from members.
Before joining, the client reports the memory, disk and bandwidth that the run needs and the
resources of this machine. It warns if a resource is short, and exits if the run certainly does not fit.
Ctrl-C leaves the run; the same command joins it again.`
}

// Run joins the run.
func (c *joinCommand) Run(ctx context.Context, t terminal) error {
	command, explain, err := c.train()
	if err != nil {
		return usageError{err}
	}
	err = command.Run(ctx, t)
	if c.CheckpointDir == "" && errors.Is(err, errFolderInUse) { // the run's own folder on this machine
		return fmt.Errorf("you already take part in run %q on this machine%s; end that client first, or take part a second time with --ephemeral", command.RunID, filelock.By(err))
	}
	return explain(err)
}

// train returns the command that joins the link's run, and a function that explains its errors.
func (c *joinCommand) train() (command trainCommand, explain func(error) error, err error) {
	if invite.IsChain(c.Link) {
		command, err = c.onChain()
		return command, func(err error) error { return err }, err
	}
	link, err := invite.Parse(c.Link)
	if err != nil {
		return command, nil, err
	}
	host := hostFlags{ServerAddr: link.Addr(), ServerTimeout: c.ServerTimeout, ServerKey: link.Key.String(), Genesis: link.Genesis()}
	command, err = c.of(link.RunID, link.Run, host)
	return command, func(err error) error { return explainLink(link, err) }, err
}

// onChain is like train, for a run on a chain.
func (c *joinCommand) onChain() (command trainCommand, err error) {
	link, err := invite.ParseChain(c.Link)
	if err != nil {
		return command, err
	}
	account, err := transaction.Program(link.Program).RunAddress(transaction.PublicKey(link.Authority), link.RunID)
	if err != nil {
		return command, err
	}
	flags := onchain.Flags{RPC: link.RPC, ProgramID: link.Program.String(), MaxPrice: onchain.DefaultMaxPrice}
	return c.of(link.RunID, wire.ChainRun(transaction.PublicKey(link.Program), account), hostFlags{
		ServerTimeout: c.ServerTimeout, programFlags: c.programFlags, RunFlags: onchain.RunFlags{Flags: flags, Authority: link.Authority.String()},
	})
}

// of returns the command that joins a run on a host. By default, checkpoints go to a folder of the
// run.
func (c *joinCommand) of(runID string, run [32]byte, host hostFlags) (command trainCommand, err error) {
	command = trainCommand{RunID: runID, link: "'" + strings.Trim(c.Link, "'\" ") + "'", memberFlags: c.memberFlags, KeepIdentity: !c.Ephemeral, hostFlags: host}
	if command.CheckpointDir == "" && !c.Ephemeral {
		command.CheckpointDir, err = runFolder(runID, run)
	}
	return command, err
}

// explainLink adds advice to an error if a server does not match the link.
func explainLink(link invite.Link, err error) error {
	switch {
	case errors.Is(err, tcp.ErrUntrusted):
		return fmt.Errorf("%w; the invite link names the server %s with the key %s: ask the sender for a new link; if the server's key has not changed, another machine intercepts the connection", err, link.Addr(), link.Key)
	case errors.Is(err, backend.ErrWrongRun):
		return fmt.Errorf("%w; the invite link names run %q with the genesis %s: ask the sender for a new link", err, link.RunID, link.Genesis())
	case errors.Is(err, backend.ErrDuplicateKey):
		return fmt.Errorf("%w: a second client on this machine needs --ephemeral, or its own key file with --identity-secret-key-path", err)
	}
	return err
}

// runFolder returns the default checkpoint folder of a run.
func runFolder(runID string, run [32]byte) (string, error) {
	state, err := stateFolder()
	if err != nil {
		return "", fmt.Errorf("%w, or choose a checkpoint folder with --checkpoint-dir, or keep nothing with --ephemeral", err)
	}
	return state.run(runID, run), nil
}
