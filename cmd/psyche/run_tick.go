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
	RunID     string `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"The run."`
	hostFlags `embed:""`
	signFlags `embed:""`
}

// firstOf returns the first error that is one.
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

// Help is shown by --help below the command's summary.
func (c *runTick) Help() string {
	return `Members tick their run by themselves; this is for a run without members, as after a pause.
Anybody may, and pays for it.`
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
	format := "nothing was due in run %s\n"
	if client.Costs().Landed > 0 {
		format = "run %s went on\n"
	}
	_, err = fmt.Fprintf(to.out, format, c.RunID)
	return err
}

// errServerTicks refuses what only a run on a chain needs.
var errServerTicks = usagef("a server does this by itself: the command is for a run on a chain, --rpc=URL,…")

// tickAway pays for ticks until nothing is due, and says what they cost.
func tickAway(ctx context.Context, to console, client *solana.Client) error {
	if _, err := fmt.Fprintf(to.err, "psyche: ticks cost %s, of which two or three are needed when something is due\n", admin.Transactions(1)); err != nil {
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
	To            string `placeholder:"KEY" help:"Where the SOL go, in base58. Default: the key that signs."`
	chainRunFlags `embed:""`
	agreeFlags    `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *runFree) Help() string {
	return `The run must be closed, or not have begun. Its account is gone afterwards, and with it what
the run had reached: psyche run archive keeps that. The main authority signs.`
}

// account returns the chain, the program and the account of the run, whether or not it has a genesis.
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
	if err := c.agree(to, fmt.Sprintf("getting back %s SOL of run %s", admin.SOL(lamports), c.RunID), admin.Transactions(1)); err != nil {
		return err
	}
	if err := chain.Free(ctx, program, run, spill); err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "the account of run %s is gone: %s SOL are back at %s\n", c.RunID, admin.SOL(lamports), spill)
	return err
}
