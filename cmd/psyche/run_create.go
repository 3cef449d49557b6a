package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/tcp"
)

type runCreate struct {
	State          string `aliases:"config-path" type:"path" placeholder:"FILE" help:"The state.toml of the run. Optional on a chain: without it, the command creates only the run's account, and update-config sets the state later."`
	RunID          string `name:"run-id" env:"RUN_ID" placeholder:"ID" help:"Name of the run, instead of run_id in the file."`
	resumeFlags    `embed:""`
	authorityFlags `embed:""`
	hostFlags      `embed:""`
	signFlags      `embed:""`
	agreeFlags     `embed:""`
	shownFlags     `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runCreate) Help() string {
	return `The signing key becomes the run's main authority: only this key can configure, pause and close the
run. A server must allow the key to create runs (server run --allow-create).

On a chain, the key pays for the run's account, about 2.42 SOL, which psyche run free recovers. The
run starts paused; psyche run set-paused --resume starts the training. Without --state, the account is
created and keeps --name, --description, --permissioned and --join-authority for update-config.`
}

// Run starts a run on a server or on a chain.
func (c *runCreate) Run(ctx context.Context, to console) error {
	isChain, err := c.onChain()
	if err != nil {
		return err
	}
	if c.State == "" {
		switch {
		case !isChain || c.RunID == "":
			return usagef("missing flags: --state=FILE")
		case c.ResumeFrom != "":
			return usagef("--resume-from needs --state")
		}
		return c.reserve(ctx, to)
	}
	run, err := loadNamedRun(c.State, c.RunID)
	if err != nil {
		return err
	}
	if err := c.apply(ctx, &run, to.out); err != nil {
		return err
	}
	key, err := c.key(isChain)
	if err != nil {
		return err
	}
	if isChain {
		if err := c.addDraft(ctx, to, run.RunID, key); err != nil {
			return err
		}
	}
	if err := c.describe(&run.Model); err != nil {
		return err
	}
	genesis, err := c.genesis(run, key.ID())
	if err != nil {
		return err
	}
	if isChain {
		g, err := pausedGenesis(key.ID(), genesis)
		if err != nil {
			return err
		}
		return c.createOnChain(ctx, to, run.RunID, g, nil)
	}
	o, err := c.options(run.RunID, key, to.err)
	if err != nil {
		return err
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	hash, err := tcp.Create(ctx, o, genesis)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "run %s is on %s, its main authority is %s\nits hash, for --genesis, is %x\n", run.RunID, c.ServerAddr, key.ID(), hash)
	return err
}

// openChain opens the chain for the signing key, and returns the program that the flags select.
func (c *runCreate) openChain(to console, key identity.Key) (*admin.Chain, transaction.PublicKey, error) {
	o, err := c.chain(key, to.err)
	if err != nil {
		return nil, transaction.PublicKey{}, err
	}
	chain, err := admin.Open(o)
	return chain, o.Program, err
}

// createOnChain creates the run's account. With a genesis it also starts the run. Without one it
// stores the draft, if not nil, in the account.
func (c *runCreate) createOnChain(ctx context.Context, to console, runID string, g *coordinator.Genesis, draft *layout.Draft) error {
	if err := checkRunID(runID); err != nil {
		return err
	}
	key, err := c.key(true)
	if err != nil {
		return err
	}
	chain, program, err := c.openChain(to, key)
	if err != nil {
		return err
	}
	defer chain.Close()
	ctx, cancel := c.bound(ctx)
	defer cancel()
	plan, err := chain.PlanCreate(ctx, program, runID, g, draft)
	if err != nil {
		return err
	}
	if err := chain.Need(ctx, plan.Cost); err != nil {
		return err
	}
	if err := c.agree(to, "run "+runID, plan.Cost); err != nil {
		return err
	}
	if err := chain.Create(ctx, plan); err != nil {
		return err
	}
	next := "to configure it: psyche run update-config --state FILE"
	if g != nil {
		next = "it is paused; to start it: psyche run set-paused --resume"
	}
	_, err = fmt.Fprintf(to.out, "run %s is on the chain at %s, its main authority is %s\n%s --run-id %s --rpc URL\n", runID, plan.Run, key.ID(), next, runID)
	return err
}

// pausedGenesis returns the genesis of a run on a chain, in state Paused.
func pausedGenesis(main identity.ID, first func(coordinator.ClientID) (coordinator.State, error)) (*coordinator.Genesis, error) {
	s, err := first(coordinator.ClientID(main)) // the host is set later
	if err != nil {
		return nil, configError{err}
	}
	return &coordinator.Genesis{
		RunID: s.RunID, Host: s.Host, MainAuthority: coordinator.ClientID(main), JoinAuthority: cmp.Or(s.Authority.Join, coordinator.ClientID(main)),
		Permissioned: s.Authority.Permissioned, Paused: true, Config: s.Config, Model: s.Model, Progress: s.Progress,
	}, nil
}
