package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

type runAuthorize struct {
	Grantee  string `arg:"" name:"key" help:"Key to admit, in base58."`
	Revoke   bool   `help:"Revoke the authorization of the key and its delegates instead."`
	actFlags `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runAuthorize) Help() string {
	return `For permissioned runs. The join authority signs. A member whose authorization is revoked stays until
the end of the epoch.`
}

// Run admits a key to a permissioned run.
func (c *runAuthorize) Run(ctx context.Context, to console) error {
	grantee, err := identity.ParseID(c.Grantee)
	if err != nil {
		return usageError{err}
	}
	if err := rejectZeroKey(grantee); err != nil {
		return err
	}
	if err := c.submit(ctx, to, coordinator.Authorize{Grantee: coordinator.ClientID(grantee), Allowed: !c.Revoke}); err != nil {
		return err
	}
	right := "may join"
	if c.Revoke {
		right = "may no longer join"
	}
	_, err = fmt.Fprintf(to.out, "%s %s run %s\n", grantee, right, c.RunID)
	return err
}

// rejectZeroKey returns an error for the zero key, which stands for every key in the original Psyche.
func rejectZeroKey(grantee identity.ID) error {
	if grantee == (identity.ID{}) {
		return usagef("the zero key %s cannot be authorized: to admit every key, create the run without --permissioned", grantee)
	}
	return nil
}
