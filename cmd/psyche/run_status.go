package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server/status"
	"github.com/psyche-go/psyche/record/invite"
)

type runStatus struct {
	Link      string `arg:"" optional:"" placeholder:"LINK" help:"Invite link of the run, in quotes, instead of --run-id and the flags of its host."`
	RunID     string `name:"run-id" env:"RUN_ID" placeholder:"ID" help:"Name of the run."`
	JSON      bool   `name:"json" help:"Print the full state as JSON."`
	hostFlags `embed:""`
}

// Run shows the progress of a run.
func (c *runStatus) Run(ctx context.Context, to console) error {
	if err := c.choose(); err != nil {
		return err
	}
	seen, err := c.lookAt(ctx, c.RunID, to.err)
	if errors.Is(err, admin.ErrNotConfigured) && !c.JSON {
		return c.printUnconfigured(ctx, to)
	}
	if err != nil {
		return err
	}
	run := status.Of(seen.State, seen.Run)
	run.CallPeers(seen.Peers)
	if err := c.nameAuthorizers(ctx, to, &seen.State.Authority, &run); err != nil {
		_, _ = fmt.Fprintf(to.err, "psyche: cannot read the authorizations for all runs: %v\n", err)
	}
	if c.JSON {
		return printJSON(to.out, run)
	}
	if err := run.Print(to.out, time.Now()); err != nil || !c.Given() {
		return err
	}
	return c.printAccount(ctx, to, transaction.PublicKey(seen.State.Host))
}

// choose sets the flags of the run and its host from the link, if there is one.
func (c *runStatus) choose() error {
	switch {
	case c.Link == "" && c.RunID == "":
		return usagef("which run: give its invite link, or --run-id with --server-addr or --rpc")
	case c.Link == "":
		return nil
	case c.ServerAddr != "" || c.Given():
		return usagef("the link names the host of the run: omit --server-addr and --rpc, and unset SERVER_ADDR")
	}
	c.RunID = ""
	if invite.IsChain(c.Link) {
		link, err := invite.ParseChain(c.Link)
		c.RunID, c.RunFlags = link.RunID, onchain.RunFlags{Authority: link.Authority.String(), Flags: onchain.Flags{
			RPC: link.RPC, ProgramID: link.Program.String(), MaxPrice: onchain.DefaultMaxPrice,
		}}
		return asUsage(err)
	}
	link, err := invite.Parse(c.Link)
	c.RunID, c.ServerAddr, c.ServerKey, c.Genesis = link.RunID, link.Addr(), link.Key.String(), link.Genesis()
	return asUsage(err)
}

// asUsage marks an error as an error of the command line. It returns nil for nil.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// nameAuthorizers adds the authorized keys to the run's authorizations that belong to grants.
func (c *runStatus) nameAuthorizers(ctx context.Context, to console, authority *coordinator.Authority, run *status.Run) error {
	if !c.Given() || !authority.Permissioned {
		return nil
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	chain, program, err := openToLook(&c.Flags, to)
	if err != nil {
		return err
	}
	defer chain.Close()
	grants, err := chain.Grants(ctx, program, transaction.PublicKey(authority.Join))
	for _, grant := range grants {
		run.NameAuthorizer(coordinator.ClientID(grant.At), grant.Grantee)
	}
	return err
}

// printUnconfigured shows a run whose account has no genesis.
func (c *runStatus) printUnconfigured(ctx context.Context, to console) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	chain, program, err := openToLook(&c.Flags, to)
	if err != nil {
		return err
	}
	defer chain.Close()
	waiting, err := chain.Unconfigured(ctx, program, c.RunID)
	if err != nil {
		return err
	}
	for _, u := range waiting {
		if c.Authority != "" && c.Authority != u.Main.String() {
			continue
		}
		if _, err := fmt.Fprintf(to.out, "run             %s\nstate           not configured yet\nmain authority  %s\nprogram         %s\naccount         %s, with %s SOL\n",
			c.RunID, u.Main, program, u.Run, admin.SOL(u.Lamports)); err != nil {
			return err
		}
		if err := printDraft(to, u.Draft, identity.ID(u.Main)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(to.out, "to configure    psyche run update-config --state FILE --run-id %s\nto recover SOL  psyche run free --run-id %s\n", c.RunID, c.RunID); err != nil {
			return err
		}
	}
	return nil
}

// printAccount shows data of the chain about a run, in addition to its state. The account is the
// run's host.
func (c *runStatus) printAccount(ctx context.Context, to console, run transaction.PublicKey) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	chain, program, err := openToLook(&c.Flags, to)
	if err != nil {
		return err
	}
	defer chain.Close()
	summary, err := chain.Summary(ctx, run, "confirmed")
	if err != nil {
		return err
	}
	lamports, err := chain.Balance(ctx, run)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "program         %s\naccount         %s, with %s SOL\nlog             event %d in slot %d, head %x\n",
		program, run, admin.SOL(lamports), summary.Sequence, summary.Slot, summary.Head)
	return err
}

func printJSON(to io.Writer, value any) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
