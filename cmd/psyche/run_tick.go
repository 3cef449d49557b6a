package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/chain/transaction"
)

// chainRunFlags are the flags of commands that need a run on a chain.
type chainRunFlags struct {
	RunID     string `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"Name of the run."`
	hostFlags `embed:""`
	signFlags `embed:""`
}

// firstOf returns the first error that is not nil.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

type runTick struct {
	chainRunFlags `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runTick) Help() string {
	return `Members tick their run automatically. This command is for a run without members, for example after a
pause. Every key may use it, and pays the fees.`
}

// Run ticks.
func (c *runTick) Run(ctx context.Context, to console) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if isChain, err := c.onChain(); err != nil || !isChain {
		return firstOf(err, errServerTicks)
	}
	key, err := c.key(true)
	if err != nil {
		return err
	}
	host, err := c.dial(ctx, c.RunID, key, to.err)
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }()
	if _, err := firstUpdate(ctx, host); err != nil {
		return err
	}
	client := host.(*solana.Client)
	if err := tickAway(ctx, to, client); err != nil {
		return err
	}
	format := "no tick was due in run %s\n"
	if client.Costs().Landed > 0 {
		format = "run %s advanced\n"
	}
	_, err = fmt.Fprintf(to.out, format, c.RunID)
	return err
}

// errServerTicks rejects the command for a run on a server.
var errServerTicks = usagef("a server ticks its runs automatically: this command is for a run on a chain, --rpc=URL,…")

// tickAway pays for ticks until nothing is due, and prints their cost.
func tickAway(ctx context.Context, to console, client *solana.Client) error {
	if _, err := fmt.Fprintf(to.err, "psyche: ticks cost %s; if a tick is due, two or three are needed\n", admin.Transactions(1)); err != nil {
		return err
	}
	before := client.Costs()
	if err := client.Tick(ctx); err != nil {
		return err
	}
	after := client.Costs()
	_, err := fmt.Fprintf(to.err, "psyche: paid %s SOL for %d transactions\n", admin.SOL(after.Lamports-before.Lamports), after.Landed-before.Landed)
	return err
}

type runFree struct {
	To            string `placeholder:"KEY" help:"Key that receives the SOL, in base58. Default: the signing key."`
	Addresses     bool   `help:"Delete the account with the addresses of a client of the run instead; the client's key signs and receives the SOL. Name the run's main authority with --authority."`
	chainRunFlags `embed:""`
	agreeFlags    `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runFree) Help() string {
	return `The run must be closed, or must not have started. This command deletes the run's account and
progress; to keep the log, use psyche run archive first. The main authority signs.`
}

// account returns the chain, the program and the account of the run, which may have no genesis.
func (c *runFree) account(to console) (chain *admin.Chain, program, run transaction.PublicKey, err error) {
	if isChain, err := c.onChain(); err != nil || !isChain {
		return nil, program, run, firstOf(err, errServerTicks)
	}
	key, err := c.key(true)
	if err != nil {
		return nil, program, run, err
	}
	o, err := c.chain(key, to.err)
	if err != nil {
		return nil, program, run, err
	}
	authority := transaction.PublicKey(key.ID())
	if c.Authority != "" {
		if authority, err = transaction.ParsePublicKey(c.Authority); err != nil {
			return nil, program, run, usagef("--authority: %w", err)
		}
	}
	if err := checkRunID(c.RunID); err != nil {
		return nil, program, run, err
	}
	if run, err = transaction.Program(o.Program).RunAddress(authority, c.RunID); err != nil {
		return nil, program, run, err
	}
	chain, err = admin.Open(o)
	return chain, o.Program, run, err
}

// Run frees the account.
func (c *runFree) Run(ctx context.Context, to console) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	chain, program, run, err := c.account(to)
	if err != nil {
		return err
	}
	defer chain.Close()
	if c.Addresses {
		return c.forget(ctx, to, chain, program, run)
	}
	spill := chain.Payer()
	if c.To != "" {
		if spill, err = transaction.ParsePublicKey(c.To); err != nil {
			return usagef("--to: %w", err)
		}
	}
	lamports, err := chain.PlanFree(ctx, program, run)
	if err != nil {
		return err
	}
	if err := chain.Need(ctx, admin.Transactions(1)); err != nil {
		return err
	}
	if err := c.agree(to, fmt.Sprintf("recovering %s SOL of run %s", admin.SOL(lamports), c.RunID), admin.Transactions(1)); err != nil {
		return err
	}
	if err := chain.Free(ctx, program, run, spill); err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "deleted the account of run %s: %s SOL went to %s\n", c.RunID, admin.SOL(lamports), spill)
	return err
}

// forget frees the account with the addresses of the signing client.
func (c *runFree) forget(ctx context.Context, to console, chain *admin.Chain, program, run transaction.PublicKey) error {
	if c.To != "" {
		return usagef("give either --to or --addresses: the SOL of the addresses goes to the client's key")
	}
	if err := c.agree(to, "recovering the SOL of the client's addresses in run "+c.RunID, admin.Transactions(1)); err != nil {
		return err
	}
	lamports, err := chain.Forget(ctx, program, run)
	if err != nil {
		return err
	}
	if lamports == 0 {
		return fmt.Errorf("run %s: %s has no account with addresses", c.RunID, chain.Payer())
	}
	_, err = fmt.Fprintf(to.out, "deleted the addresses of %s in run %s: %s SOL went to this key\n", chain.Payer(), c.RunID, admin.SOL(lamports))
	return err
}
