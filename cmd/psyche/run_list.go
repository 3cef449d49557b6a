package main

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
)

type runList struct {
	onchain.Flags `embed:""`
}

// Run prints the runs of a program, one a line.
func (c *runList) Run(ctx context.Context, to console) error {
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
		what := r.Summary.RunState.String()
		if r.Summary.Closed {
			what += ", closed"
		}
		_, err := fmt.Fprintf(to.out, "%q  epoch %d  step %d  %s  account %s  authority %s\n", r.Summary.RunID,
			r.Summary.Progress.Epoch, r.Summary.Progress.Step, what, r.Run, transaction.PublicKey(r.Summary.Main))
		if err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(to.out, "%d runs of program %s\n", len(runs), program)
	return err
}

// openToLook opens a chain for a reader, who pays nothing, and returns the program that the flags name.
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
