package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/record/config"
)

// reserve creates the account of a run that update-config configures later. Until then, the account
// stores name, description and join authority. If the account exists, the given flags replace
// values of its draft.
func (c *runCreate) reserve(ctx context.Context, to console) error {
	if err := c.describe(&config.Model{}); err != nil {
		return err
	}
	if _, err := c.join(); err != nil {
		return err
	}
	if c.Name == "" && c.Description == "" && !c.permissioned() {
		return c.createOnChain(ctx, to, c.RunID, nil, nil)
	}
	key, err := c.key(true)
	if err != nil {
		return err
	}
	if err := c.addDraft(ctx, to, c.RunID, key); err != nil && !errors.Is(err, layout.ErrDraft) {
		return err
	}
	join, err := c.join()
	if err != nil {
		return err
	}
	draft := layout.Draft{JoinAuthority: join, Permissioned: c.permissioned(), Name: c.Name, Description: c.Description}
	return c.createOnChain(ctx, to, c.RunID, nil, &draft)
}

// addDraft sets flags that were not given from the draft in the run's account.
func (c *runCreate) addDraft(ctx context.Context, to console, runID string, key identity.Key) error {
	if err := checkRunID(runID); err != nil {
		return err
	}
	chain, program, err := c.openChain(to, key)
	if err != nil {
		return err
	}
	defer chain.Close()
	ctx, cancel := c.bound(ctx)
	defer cancel()
	draft, found, err := chain.Draft(ctx, program, runID)
	switch {
	case err != nil:
		return fmt.Errorf("run %s: %w; store it again: psyche run create --run-id %s without --state, with the original flags", runID, err, runID)
	case !found:
		return nil
	}
	c.Name, c.Description = cmp.Or(c.Name, draft.Name), cmp.Or(c.Description, draft.Description)
	if draft.Permissioned && !c.permissioned() {
		c.Permissioned = true
		if draft.JoinAuthority != ([32]byte{}) {
			c.JoinAuthority = identity.ID(draft.JoinAuthority).String()
		}
	}
	return nil
}

// printDraft shows the draft in the account of a run.
func printDraft(to console, draft layout.Draft, main identity.ID) error {
	for _, line := range []struct{ label, text string }{{"name", draft.Name}, {"description", draft.Description}} {
		if line.text == "" {
			continue
		}
		if _, err := fmt.Fprintf(to.out, "%-16s%q\n", line.label, line.text); err != nil {
			return err
		}
	}
	if !draft.Permissioned {
		return nil
	}
	join := identity.ID(draft.JoinAuthority)
	if join == (identity.ID{}) {
		join = main
	}
	_, err := fmt.Fprintf(to.out, "%-16s%s authorizes keys to join\n", "join authority", join)
	return err
}
