package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

type runSetDelegates struct {
	Delegates []string `arg:"" optional:"" name:"key" help:"Keys, in base58, that may join on behalf of the signing key. An empty list removes all delegates."`
	actFlags  `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runSetDelegates) Help() string {
	return `For permissioned runs. The signing key must be authorized by the join authority. Delegates allow
machines to train without a copy of that key. The list replaces the previous list.`
}

// Run sets the keys that may join on behalf of an authorized key.
func (c *runSetDelegates) Run(ctx context.Context, to console) error {
	delegates, err := parseIDs(c.Delegates)
	if err != nil {
		return err
	}
	return setDelegates(ctx, to, c.actFlags, func([]coordinator.ClientID) []coordinator.ClientID { return delegates })
}

// setDelegates replaces the delegates of the signing key. choose computes the new delegates from the
// current ones.
func setDelegates(ctx context.Context, to console, f actFlags, choose func(before []coordinator.ClientID) []coordinator.ClientID) error {
	var delegates []coordinator.ClientID
	err := f.decide(ctx, to, func(s *coordinator.State, from coordinator.ClientID) (coordinator.Action, error) {
		own, ok := s.Authority.Authorization(from)
		switch {
		case !s.Authority.Permissioned:
			return coordinator.SetDelegates{}, coordinator.ErrPermissionless
		case !ok:
			return coordinator.SetDelegates{}, coordinator.ErrNotAuthorised
		}
		delegates = choose(own.Delegates)
		return coordinator.SetDelegates{Number: own.Number, Delegates: delegates}, nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "%s may join run %s\n", count(uint64(len(delegates)), "delegate"), f.RunID)
	return err
}
