package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

type runAuthorize struct {
	Grantee  string `arg:"" name:"key" help:"Key in base58 that may join."`
	Revoke   bool   `help:"End the authorization of the key instead, and that of its delegates."`
	actFlags `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *runAuthorize) Help() string {
	return `For permissioned runs. The join authority signs. A member whose authorization ends stays
until the end of the epoch.`
}

// Run admits a key to a permissioned run.
func (c *runAuthorize) Run(ctx context.Context, to console) error {
	grantee, err := identity.ParseID(c.Grantee)
	if err != nil {
		return usageError{err}
	}
	if err := somebody(grantee); err != nil {
		return err
	}
	if err := c.submit(ctx, to, coordinator.Authorize{Grantee: coordinator.ClientID(grantee), Allowed: !c.Revoke}); err != nil {
		return err
	}
	right := "may join"
	if c.Revoke {
		right = "may join no longer"
	}
	_, err = fmt.Fprintf(to.out, "%s %s run %s\n", grantee, right, c.RunID)
	return err
}

// somebody refuses the key of nobody, which the original takes for everybody's.
func somebody(grantee identity.ID) error {
	if grantee == (identity.ID{}) {
		return usagef("the key %s is nobody's, and admits nobody: everybody may join a run that was begun without --permissioned", grantee)
	}
	return nil
}
