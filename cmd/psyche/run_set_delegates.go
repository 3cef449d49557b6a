package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

type runSetDelegates struct {
	Delegates []string `arg:"" optional:"" name:"key" help:"Keys in base58 that may join in the name of the key that signs; none: nobody."`
	actFlags  `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *runSetDelegates) Help() string {
	return `For permissioned runs. A key that the join authority authorized signs. So the machines
that train need not have that key. The list replaces the one before.`
}

// Run names the keys that may join in the name of an authorized one.
func (c *runSetDelegates) Run(ctx context.Context, to console) error {
	delegates, err := parseIDs(c.Delegates)
	if err != nil {
		return err
	}
	err = c.decide(ctx, to, func(s *coordinator.State, from coordinator.ClientID) (coordinator.Action, error) {
		own, ok := s.Authority.Authorization(from)
		switch {
		case !s.Authority.Permissioned:
			return coordinator.SetDelegates{}, coordinator.ErrPermissionless
		case !ok:
			return coordinator.SetDelegates{}, coordinator.ErrNotAuthorised
		}
		return coordinator.SetDelegates{Number: own.Number, Delegates: delegates}, nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "%s may join run %s\n", count(uint64(len(delegates)), "delegate"), c.RunID)
	return err
}
