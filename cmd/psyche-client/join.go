package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/invite"
	"github.com/psyche-go/psyche/record/wire"
)

// joinCommand takes part in the run of a link.
type joinCommand struct {
	Link string `arg:"" placeholder:"LINK" help:"The run, as psyche run invite and its server print it: 'psyche://HOST:PORT/RUN?key=…&genesis=…', or 'psyche+solana://…' of a run on a chain, in quotes."`

	Ephemeral     bool          `help:"Keep nothing on this machine that no other flag asks for: take part with a fresh key, and save no checkpoints." group:"Your key:"`
	ServerTimeout time.Duration `help:"How long to try to reach the server at first." default:"30s" group:"The run:"`

	programFlags `embed:"" group:"A run on a chain:"`
	memberFlags  `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *joinCommand) Help() string {
	return `As psyche-client train, with what the link says: the address of the server, the key that it has
to prove, the run, and the hash that this has to have. The key of this member is made at the
first start and kept for the next ones, as psyche/identity.json in XDG_STATE_HOME or in
~/.local/state; checkpoints go to psyche/runs beside it. On a chain that key pays for what the client does there, and a program that is not the one of this
version is refused, since it could take all that the account of the key holds. A model that only the run's host has
comes from its server, or from the members. Before it joins it says what the run needs, of memory,
disk and bandwidth, and what this machine has. If that is short it warns; if the run certainly does not fit it ends. Ctrl-C leaves the run; the same
command takes part again.`
}

// Run joins the run.
func (c *joinCommand) Run(ctx context.Context, t terminal) error {
	command, explain, err := c.member()
	if err != nil {
		return usageError{err}
	}
	return explain(command.Run(ctx, t))
}

// member returns the command by which a member of the link's run takes part, and what explains its errors.
func (c *joinCommand) member() (command trainCommand, explain func(error) error, err error) {
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

// onChain is member for a run on a chain.
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

// of returns the command of a member of a run on a host. Checkpoints have a folder of the run, if no flag names another.
func (c *joinCommand) of(runID string, run [32]byte, host hostFlags) (command trainCommand, err error) {
	command = trainCommand{RunID: runID, memberFlags: c.memberFlags, KeepIdentity: !c.Ephemeral, hostFlags: host}
	if command.CheckpointDir == "" && !c.Ephemeral {
		command.CheckpointDir, err = runFolder(runID, run)
	}
	return command, err
}

// explainLink says what to do when a server is not what the link says.
func explainLink(link invite.Link, err error) error {
	switch {
	case errors.Is(err, tcp.ErrUntrusted):
		return fmt.Errorf("%w; the link says that the server at %s has the key %s: ask whoever gave it to you for a new one; if the server's key has not changed, somebody is between you and it", err, link.Addr(), link.Key)
	case errors.Is(err, backend.ErrWrongRun):
		return fmt.Errorf("%w; the link says run %q with the genesis %s: ask whoever gave it to you for a new one", err, link.RunID, link.Genesis())
	case errors.Is(err, backend.ErrDuplicateKey):
		return fmt.Errorf("%w: a second client on this machine needs --ephemeral, or a key file of its own with --identity-secret-key-path", err)
	}
	return err
}

// runFolder returns where the checkpoints of a run are kept.
func runFolder(runID string, run [32]byte) (string, error) {
	state, err := stateFolder(os.LookupEnv)
	if err != nil {
		return "", fmt.Errorf("%w, or say where checkpoints go with --checkpoint-dir, or keep nothing with --ephemeral", err)
	}
	return state.run(runID, run), nil
}
