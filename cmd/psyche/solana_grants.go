package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// grantRuns selects what an authorization is for: one run, or all runs of a join authority on a
// chain.
type grantRuns struct {
	RunID         string `name:"run-id" env:"RUN_ID" placeholder:"ID" help:"Name of the run. Default: all runs of the join authority on the chain, also later ones."`
	JoinAuthority string `placeholder:"KEY" help:"Join authority of the runs, in base58. Default for create and delete: the signing key."`
	hostFlags     `embed:""`
}

// forAll reports whether the command is for all runs of a join authority.
func (g *grantRuns) forAll() (bool, error) {
	if g.RunID != "" {
		return false, nil
	}
	if isChain, err := g.onChain(); err != nil || !isChain {
		return false, firstOf(err, usagef("missing flags: --run-id=ID"))
	}
	return true, nil
}

// join returns the key of --join-authority, which is required.
func (g *grantRuns) join() (identity.ID, error) {
	if g.JoinAuthority == "" {
		return identity.ID{}, usagef("missing flags: --run-id=ID, or --join-authority=KEY for all of its runs")
	}
	join, err := identity.ParseID(g.JoinAuthority)
	if err != nil {
		err = usagef("--join-authority: %w", err)
	}
	return join, err
}

// eachRun calls do for every started run of a join authority, and returns its errors joined.
func (g *grantRuns) eachRun(ctx context.Context, to console, join identity.ID, do func(runID string, at hostFlags) error) error {
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
	return chain.RunsOfJoinAuthority(ctx, program, transaction.PublicKey(join))
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

// parse parses the key of --authorizer, which may join, and reports whether the command is for all
// runs of a join authority.
func (g *grantRuns) parse(authorizer string) (grantee identity.ID, all bool, err error) {
	if authorizer == "" {
		return grantee, false, usagef("missing flags: --authorizer=KEY")
	}
	if grantee, err = keyOrFile(authorizer); err != nil {
		return grantee, false, err
	}
	all, err = g.forAll()
	return grantee, all, err
}

type grantCreate struct {
	Authorizer   string `placeholder:"KEY|FILE" help:"Key that may join, in base58 or as a key file."`
	MaxDelegates int    `default:"32" placeholder:"N" help:"For all runs: maximum number of delegates of the key, which determines the deposit; at most 256 (${default})."`
	grantActs    `embed:""`
}

// Run admits the key.
func (c *grantCreate) Run(ctx context.Context, to console) error {
	grantee, all, err := c.parse(c.Authorizer)
	switch {
	case err != nil:
		return err
	case !all:
		authorize := runAuthorize{Grantee: grantee.String(), actFlags: c.in(c.RunID, c.hostFlags)}
		return authorize.Run(ctx, to)
	case c.MaxDelegates < 0 || c.MaxDelegates > layout.MaxGrantDelegates:
		return usagef("--max-delegates is %d, want 0 to %d", c.MaxDelegates, layout.MaxGrantDelegates)
	}
	if err := rejectZeroKey(grantee); err != nil {
		return err
	}
	return c.createForAll(ctx, to, grantee, c.MaxDelegates)
}

type grantDelete struct {
	Authorizer string `placeholder:"KEY|FILE" help:"Key that loses its authorization, in base58 or as a key file."`
	grantActs  `embed:""`
}

// Run ends the authorization.
func (c *grantDelete) Run(ctx context.Context, to console) error {
	grantee, all, err := c.parse(c.Authorizer)
	switch {
	case err != nil:
		return err
	case !all:
		revoke := runAuthorize{Grantee: grantee.String(), Revoke: true, actFlags: c.in(c.RunID, c.hostFlags)}
		return revoke.Run(ctx, to)
	}
	return c.deleteForAll(ctx, to, grantee)
}

type grantRead struct {
	Authorizer string `placeholder:"KEY|FILE" help:"Key that may join, in base58 or as a key file."`
	grantRuns  `embed:""`
}

// Run prints the authorization.
func (c *grantRead) Run(ctx context.Context, to console) error {
	grantee, all, err := c.parse(c.Authorizer)
	switch {
	case err != nil:
		return err
	case !all:
		return readOne(ctx, to, grantee, c.RunID, c.hostFlags)
	}
	join, err := c.join()
	if err != nil {
		return err
	}
	return c.readForAll(ctx, to, join, grantee)
}

// readOne prints the authorization of a key in one run.
func readOne(ctx context.Context, to console, grantee identity.ID, runID string, at hostFlags) error {
	state, err := at.look(ctx, runID, to.err)
	if err != nil {
		return err
	}
	own, ok := state.Authority.Authorization(coordinator.ClientID(grantee))
	switch {
	case !state.Authority.Permissioned:
		_, err = fmt.Fprintf(to.out, "run %s admits every key\n", runID)
	case ok:
		_, err = fmt.Fprintf(to.out, "%s may join run %s, and %s\n", grantee, runID, onBehalf(own.Delegates))
	case state.Authority.MayJoin(coordinator.ClientID(grantee)):
		_, err = fmt.Fprintf(to.out, "%s may join run %s as a delegate, or by an authorization for all runs\n", grantee, runID)
	default:
		return refusal{fmt.Sprintf("%s may not join run %s", grantee, runID), coordinator.ErrNotAuthorised}
	}
	return err
}

// onBehalf lists keys that may join on behalf of another key.
func onBehalf[K ~[32]byte](delegates []K) string {
	var names []string
	for _, id := range delegates {
		names = append(names, identity.ID(id).String())
	}
	return fmt.Sprintf("%s on its behalf: %s", count(uint64(len(names)), "key"), strings.Join(names, " "))
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
	all, err := c.forAll()
	switch {
	case err != nil:
		return err
	case !all:
		return c.delegateOne(ctx, to, added, c.RunID, c.hostFlags)
	}
	join, err := c.join()
	if err != nil {
		return err
	}
	return c.delegateForAll(ctx, to, join, added)
}

// delegateOne changes the delegates in one run.
func (c *grantDelegate) delegateOne(ctx context.Context, to console, added []coordinator.ClientID, runID string, at hostFlags) error {
	return setDelegates(ctx, to, c.in(runID, at), func(before []coordinator.ClientID) []coordinator.ClientID {
		if c.DelegatesClear {
			return added
		}
		return union(before, added)
	})
}

// union returns the keys of both lists, each once.
func union[K comparable](before, added []K) []K {
	all := slices.Clone(before)
	for _, id := range added {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}
