package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// grantRuns selects the runs of an authorization: one run, or all runs of a join authority.
type grantRuns struct {
	RunID         string `name:"run-id" env:"RUN_ID" placeholder:"ID" help:"Name of the run. Default: every started run of the program with this join authority."`
	JoinAuthority string `placeholder:"KEY" help:"Join authority of the runs, in base58. Default for create and delete: the signing key."`
	hostFlags     `embed:""`
}

// eachRun calls do for every selected run, and returns its errors joined. Without --join-authority,
// signer is the join authority. If signer is nil too, --run-id is required.
func (g *grantRuns) eachRun(ctx context.Context, to console, signer *identity.ID, do func(runID string, at hostFlags) error) error {
	if g.RunID != "" {
		return do(g.RunID, g.hostFlags)
	}
	if isChain, err := g.onChain(); err != nil || !isChain {
		return firstOf(err, usagef("missing flags: --run-id=ID"))
	}
	var join identity.ID
	switch {
	case g.JoinAuthority != "":
		var err error
		if join, err = identity.ParseID(g.JoinAuthority); err != nil {
			return usagef("--join-authority: %w", err)
		}
	case signer != nil:
		join = *signer
	default:
		return usagef("missing flags: --run-id=ID, or --join-authority=KEY for all of its runs")
	}
	runs, err := g.ofJoinAuthority(ctx, to, join)
	if err != nil {
		return err
	}
	var all []error
	for _, run := range runs {
		at := g.hostFlags
		at.Authority = transaction.PublicKey(run.Summary.Main).String()
		if err := do(run.Summary.RunID, at); err != nil {
			all = append(all, err)
		}
	}
	_, _ = fmt.Fprintf(to.err, "psyche: %s has %s; run this command again for runs that start later\n", join, count(uint64(len(runs)), "run"))
	return errors.Join(all...)
}

// ofJoinAuthority finds the runs of a join authority.
func (g *grantRuns) ofJoinAuthority(ctx context.Context, to console, join identity.ID) ([]admin.Found, error) {
	ctx, cancel := g.bound(ctx)
	defer cancel()
	chain, program, err := openToLook(&g.Flags, to)
	if err != nil {
		return nil, err
	}
	defer chain.Close()
	runs, err := chain.RunsOfJoinAuthority(ctx, program, transaction.PublicKey(join))
	if err == nil && len(runs) == 0 {
		err = fmt.Errorf("%w with the join authority %s in program %s; set it with create-run --join-authority KEY, and start the run with update-config", admin.ErrNoRun, join, program)
	}
	return runs, err
}

// grantActs are the flags of commands that change authorizations.
type grantActs struct {
	grantRuns  `embed:""`
	signFlags  `embed:""`
	Commitment string `enum:"confirmed,finalized" default:"finalized" help:"On a chain: commitment level to wait for; finalized takes about 13 s (${default})."`
}

// in returns the flags for a change of one run.
func (g *grantActs) in(runID string, at hostFlags) actFlags {
	return actFlags{RunID: runID, hostFlags: at, signFlags: g.signFlags, Commitment: g.Commitment}
}

// grantee parses the key that may join.
func grantee(authorizer string) (identity.ID, error) {
	if authorizer == "" {
		return identity.ID{}, usagef("missing flags: --authorizer=KEY")
	}
	return keyOrFile(authorizer)
}

type grantCreate struct {
	Authorizer string `placeholder:"KEY|FILE" help:"Key that may join, in base58 or as a key file."`
	grantActs  `embed:""`
}

// Run admits the key.
func (c *grantCreate) Run(ctx context.Context, to console) error {
	return c.grant(ctx, to, c.Authorizer, false)
}

type grantDelete struct {
	Authorizer string `placeholder:"KEY|FILE" help:"Key that loses its authorization, in base58 or as a key file."`
	grantActs  `embed:""`
}

// Run ends the authorization.
func (c *grantDelete) Run(ctx context.Context, to console) error {
	return c.grant(ctx, to, c.Authorizer, true)
}

// grant authorizes a key in the selected runs, or revokes its authorization. If several runs are
// selected, some may already be in the requested state.
func (g *grantActs) grant(ctx context.Context, to console, authorizer string, revoke bool) error {
	grantee, err := grantee(authorizer)
	if err != nil {
		return err
	}
	key, err := g.key(g.Given())
	if err != nil {
		return err
	}
	signer := key.ID()
	return g.eachRun(ctx, to, &signer, func(runID string, at hostFlags) error {
		authorize := runAuthorize{Grantee: grantee.String(), Revoke: revoke, actFlags: g.in(runID, at)}
		err := authorize.Run(ctx, to)
		if g.RunID == "" && errors.Is(err, coordinator.ErrDuplicate) {
			_, err = fmt.Fprintln(to.out, err)
		}
		return err
	})
}

type grantRead struct {
	Authorizer string `placeholder:"KEY|FILE" help:"Key that may join, in base58 or as a key file."`
	grantRuns  `embed:""`
}

// Run prints the authorization.
func (c *grantRead) Run(ctx context.Context, to console) error {
	grantee, err := grantee(c.Authorizer)
	if err != nil {
		return err
	}
	return c.eachRun(ctx, to, nil, func(runID string, at hostFlags) error {
		state, err := at.look(ctx, runID, to.err)
		if err != nil {
			return err
		}
		own, ok := state.Authority.Authorization(coordinator.ClientID(grantee))
		switch {
		case !state.Authority.Permissioned:
			_, err = fmt.Fprintf(to.out, "run %s admits every key\n", runID)
		case !ok:
			return refusal{fmt.Sprintf("%s may not join run %s", grantee, runID), coordinator.ErrNotAuthorised}
		default:
			var names []string
			for _, id := range own.Delegates {
				names = append(names, identity.ID(id).String())
			}
			_, err = fmt.Fprintf(to.out, "%s may join run %s, and %s on its behalf: %s\n", grantee, runID, count(uint64(len(names)), "key"), strings.Join(names, " "))
		}
		return err
	})
}

type grantDelegate struct {
	DelegatesClear bool     `help:"Remove existing delegates first."`
	DelegatesAdded []string `sep:"," placeholder:"KEY|FILE,…" help:"Keys that may join, in base58 or as key files."`
	grantActs      `embed:""`
}

// Run changes the delegates of the signing key.
func (c *grantDelegate) Run(ctx context.Context, to console) error {
	var added []coordinator.ClientID
	for _, text := range c.DelegatesAdded {
		id, err := keyOrFile(text)
		if err != nil {
			return err
		}
		if !slices.Contains(added, coordinator.ClientID(id)) {
			added = append(added, coordinator.ClientID(id))
		}
	}
	return c.eachRun(ctx, to, nil, func(runID string, at hostFlags) error {
		err := setDelegates(ctx, to, c.in(runID, at), func(before []coordinator.ClientID) []coordinator.ClientID {
			if c.DelegatesClear {
				return added
			}
			all := slices.Clone(before)
			for _, id := range added {
				if !slices.Contains(all, id) {
					all = append(all, id)
				}
			}
			return all
		})
		if c.RunID == "" && errors.Is(err, coordinator.ErrDuplicate) {
			_, err = fmt.Fprintln(to.out, err)
		}
		return err
	})
}
