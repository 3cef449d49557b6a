package main

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/plain"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/config"
)

// runList lists the runs of a server, or of a program on a chain.
type runList struct {
	serverFlags   `embed:""`
	onchain.Flags `embed:""`
}

// Help describes how far the list can be trusted.
func (c *runList) Help() string {
	return `The server's list is not verified. psyche run status shows one run; psyche run replay verifies one run.`
}

// Run prints the runs, one per line.
func (c *runList) Run(ctx context.Context, to console) error {
	switch {
	case c.Given() && c.ServerAddr != "":
		return usagef("--server-addr selects the runs of a server, --rpc the runs on a chain: give one of them")
	case c.Given():
		chain := chainRuns{c.Flags}
		return chain.Run(ctx, to)
	case c.ServerAddr == "":
		return usagef("missing flags: --server-addr=HOST:PORT, or --rpc=URL,… for the runs on a chain")
	}
	key, err := identity.Generate(rand.Reader) // reading is public
	if err != nil {
		return err
	}
	o, err := c.options(key, to.err)
	if err != nil {
		return err
	}
	ctx, cancel := c.within(ctx, serverTimeout)
	defer cancel()
	runs, all, err := tcp.Runs(ctx, o)
	if err != nil {
		return err
	}
	for _, r := range runs {
		phase := r.State.String()
		if r.Closed {
			phase += ", closed"
		}
		name := ""
		if plain.CheckName(r.Name, config.MaxName) == nil {
			name = fmt.Sprintf("  named %q", r.Name)
		}
		_, err := fmt.Fprintf(to.out, "%q  epoch %d  %s done  %s  %d clients  hash %x%s\n", r.RunID, r.Epoch, count(uint64(max(r.Step, 1)-1), "step"), phase, r.Participants, r.Run, name)
		if err != nil {
			return err
		}
	}
	if int(all) > len(runs) {
		_, err = fmt.Fprintf(to.out, "and %d more, which the server does not list\n", int(all)-len(runs))
		if err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(to.out, "%s of server %s\n", count(uint64(all), "run"), c.ServerAddr)
	return err
}

// chainRuns lists the runs of a program on a chain.
type chainRuns struct {
	onchain.Flags `embed:""`
}

// Run prints the runs of a program, one per line.
func (c *chainRuns) Run(ctx context.Context, to console) error {
	chain, program, err := openToLook(&c.Flags, to)
	if err != nil {
		return err
	}
	defer chain.Close()
	if err := chain.CheckProgram(ctx, program); err != nil {
		return err
	}
	runs, err := chain.Runs(ctx, program, "")
	if err != nil {
		return err
	}
	for _, r := range runs {
		phase := r.Summary.RunState.String()
		if r.Summary.Closed {
			phase += ", closed"
		}
		_, err := fmt.Fprintf(to.out, "%q  epoch %d  %s done  %s  account %s  authority %s\n", r.Summary.RunID,
			r.Summary.Progress.Epoch, count(uint64(max(r.Summary.Progress.Step, 1)-1), "step"), phase, r.Run, transaction.PublicKey(r.Summary.Main))
		if err != nil {
			return err
		}
	}
	waiting, err := chain.Unconfigured(ctx, program, "")
	if err != nil {
		return err
	}
	for _, u := range waiting {
		if _, err := fmt.Fprintf(to.out, "not configured yet  account %s  authority %s  %s SOL\n", u.Run, u.Main, admin.SOL(u.Lamports)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(to.out, "%s of program %s\n", count(uint64(len(runs)), "run"), program)
	return err
}

// openToLook opens a chain for reading, without payments, and returns the program that the flags
// select.
func openToLook(f *onchain.Flags, to console) (*admin.Chain, transaction.PublicKey, error) {
	key, err := identity.Generate(rand.Reader)
	if err != nil {
		return nil, transaction.PublicKey{}, err
	}
	o, err := f.Options(key, warnings(to.err))
	if err != nil {
		return nil, transaction.PublicKey{}, usageError{err}
	}
	chain, err := admin.Open(o)
	return chain, o.Program, err
}
