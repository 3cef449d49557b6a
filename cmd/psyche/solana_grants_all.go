package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// signingChain is a chain with the signing key of a command.
type signingChain struct {
	*admin.Chain
	program transaction.PublicKey
	signer  identity.ID
}

// sign opens the chain for the signing key.
func (g *grantActs) sign(to console) (signingChain, error) {
	key, err := g.key(true)
	if err != nil {
		return signingChain{}, err
	}
	o, err := g.chain(key, to.err)
	if err != nil {
		return signingChain{}, err
	}
	chain, err := admin.Open(o)
	return signingChain{chain, o.Program, key.ID()}, err
}

// final waits until a change of a grant is final, if the command waits for that.
func (g *grantActs) final(ctx context.Context, c signingChain, at transaction.PublicKey) error {
	if g.Commitment != "finalized" {
		return nil
	}
	return c.AwaitGrant(ctx, at)
}

// createForAll authorizes a key for all runs of the signing key.
func (g *grantActs) createForAll(ctx context.Context, to console, grantee identity.ID, delegates int) error {
	ctx, cancel := g.bound(ctx)
	defer cancel()
	c, err := g.sign(to)
	if err != nil {
		return err
	}
	defer c.Close()
	grant, err := c.Grant(ctx, c.program, transaction.PublicKey(c.signer), transaction.PublicKey(grantee))
	if err == nil {
		_, err = fmt.Fprintf(to.out, "%s may already join every run of the join authority %s, and name up to %s\n", grantee, c.signer, count(uint64(grant.Room), "delegate"))
		return err
	}
	if !errors.Is(err, admin.ErrNoGrant) {
		return err
	}
	cost, err := c.GrantCost(ctx, delegates)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(to.err, "psyche: this costs %s\n", cost); err != nil {
		return err
	}
	if err := c.CreateGrant(ctx, c.program, transaction.PublicKey(grantee), delegates); err != nil {
		return err
	}
	at, err := transaction.Program(c.program).GrantAddress(transaction.PublicKey(c.signer), transaction.PublicKey(grantee))
	if err != nil {
		return err
	}
	if err := g.final(ctx, c, at); err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "%s may join every run of the join authority %s, also later ones, and name up to %s\n", grantee, c.signer, count(uint64(delegates), "delegate"))
	return err
}

// deleteForAll ends the authorization of a key for all runs of the signing key. It also ends what
// the authorization admitted to started runs, and the key's authorizations for single runs.
func (g *grantActs) deleteForAll(ctx context.Context, to console, grantee identity.ID) error {
	c, err := g.sign(to)
	if err != nil {
		return err
	}
	defer c.Close()
	ended, err := g.freeGrant(ctx, to, c, grantee)
	if err != nil {
		return err
	}
	at, err := transaction.Program(c.program).GrantAddress(transaction.PublicKey(c.signer), transaction.PublicKey(grantee))
	if err != nil {
		return err
	}
	err = g.eachRun(ctx, to, c.signer, func(runID string, host hostFlags) error {
		state, err := host.look(ctx, runID, to.err)
		if err != nil {
			return err
		}
		if _, ok := state.Authority.Authorization(coordinator.ClientID(grantee)); ok {
			ended = true
			revoke := runAuthorize{Grantee: grantee.String(), Revoke: true, actFlags: g.in(runID, host)}
			if err := revoke.Run(ctx, to); err != nil {
				return err
			}
		}
		admitted := state.Authority.Granted(coordinator.ClientID(at))
		ended = ended || len(admitted) > 0
		return g.release(ctx, to, runID, host, coordinator.ClientID(at), admitted)
	})
	if err == nil && !ended {
		err = fmt.Errorf("%w: of %s to %s, in program %s", admin.ErrNoGrant, c.signer, grantee, c.program)
	}
	return err
}

// freeGrant ends the grant of the signing key to a key. It reports whether there was one.
func (g *grantActs) freeGrant(ctx context.Context, to console, c signingChain, grantee identity.ID) (bool, error) {
	ctx, cancel := g.bound(ctx)
	defer cancel()
	grant, err := c.Grant(ctx, c.program, transaction.PublicKey(c.signer), transaction.PublicKey(grantee))
	if errors.Is(err, admin.ErrNoGrant) {
		return false, nil
	}
	if err == nil {
		err = c.FreeGrant(ctx, c.program, &grant)
	}
	if err == nil {
		err = g.final(ctx, c, grant.At)
	}
	if err == nil {
		_, err = fmt.Fprintf(to.out, "%s may no longer join new runs of the join authority %s; %s SOL were returned\n", grantee, c.signer, admin.SOL(grant.Lamports))
	}
	return true, err
}

// release ends the admission of keys that a grant admitted to a run. Another key may end an admission first. If the command
// waits for finality, only the last transaction has to be final, because the chain executes the others before it.
func (g *grantActs) release(ctx context.Context, to console, runID string, host hostFlags, grant coordinator.ClientID, admitted []coordinator.ClientID) error {
	var failed []error
	for i, client := range admitted {
		acts := g.in(runID, host)
		if i < len(admitted)-1 {
			acts.Commitment = "confirmed"
		}
		err := acts.submit(ctx, to, coordinator.Admit{Grant: grant, Client: client})
		if err == nil || errors.Is(err, coordinator.ErrDuplicate) {
			_, err = fmt.Fprintf(to.out, "%s may no longer join run %s\n", identity.ID(client), runID)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// readForAll prints the authorization of a key for all runs of a join authority. If there is none,
// it prints the key's authorizations for single runs.
func (g *grantRuns) readForAll(ctx context.Context, to console, join, grantee identity.ID) error {
	grant, err := g.readGrant(ctx, to, join, grantee)
	if err == nil {
		_, err = fmt.Fprintf(to.out, "%s may join every run of the join authority %s, and %s\naccount %s, with %s SOL and space for %s\n",
			grantee, join, onBehalf(grant.Delegates), grant.At, admin.SOL(grant.Lamports), count(uint64(grant.Room), "delegate"))
		return err
	}
	if !errors.Is(err, admin.ErrNoGrant) {
		return err
	}
	runs := 0
	failed := g.eachRun(ctx, to, join, func(runID string, at hostFlags) error {
		runs++
		return readOne(ctx, to, grantee, runID, at)
	})
	if runs == 0 && failed == nil {
		return err
	}
	return failed
}

// readGrant reads the grant of a join authority to a key.
func (g *grantRuns) readGrant(ctx context.Context, to console, join, grantee identity.ID) (admin.Grant, error) {
	ctx, cancel := g.bound(ctx)
	defer cancel()
	chain, program, err := openToLook(&g.Flags, to)
	if err != nil {
		return admin.Grant{}, err
	}
	defer chain.Close()
	return chain.Grant(ctx, program, transaction.PublicKey(join), transaction.PublicKey(grantee))
}

// delegateForAll changes the delegates of the signing key in all runs of a join authority. If the
// key is authorized for single runs only, it changes them in these.
func (c *grantDelegate) delegateForAll(ctx context.Context, to console, join identity.ID, added []coordinator.ClientID) error {
	chain, err := c.sign(to)
	if err != nil {
		return err
	}
	defer chain.Close()
	grant, err := c.setGrant(ctx, to, chain, join, added)
	if errors.Is(err, admin.ErrNoGrant) {
		return c.delegateEach(ctx, to, join, added, err)
	}
	if err != nil || !c.DelegatesClear {
		return err
	}
	return c.eachRun(ctx, to, join, func(runID string, host hostFlags) error {
		state, err := host.look(ctx, runID, to.err)
		if err != nil {
			return err
		}
		uncovered := slices.DeleteFunc(state.Authority.Granted(coordinator.ClientID(grant.At)), func(id coordinator.ClientID) bool { return grant.Covers(id) })
		return c.release(ctx, to, runID, host, coordinator.ClientID(grant.At), uncovered)
	})
}

// setGrant changes the delegates in the signing key's grant, and returns the changed grant.
func (c *grantDelegate) setGrant(ctx context.Context, to console, chain signingChain, join identity.ID, added []coordinator.ClientID) (admin.Grant, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	grant, err := chain.Grant(ctx, chain.program, transaction.PublicKey(join), transaction.PublicKey(chain.signer))
	if err != nil {
		return grant, err
	}
	if c.DelegatesClear {
		grant.Delegates = nil
	}
	keys := make([]transaction.PublicKey, len(added))
	for i, id := range added {
		keys[i] = transaction.PublicKey(id)
		grant.Delegates = union(grant.Delegates, [][32]byte{id})
	}
	if n := len(grant.Delegates); n > grant.Room {
		return grant, refusal{fmt.Sprintf("%d delegates: the authorization has space for %d; the join authority can delete it and create it again with --max-delegates", n, grant.Room), coordinator.ErrFull}
	}
	if err := chain.Delegate(ctx, chain.program, &grant, c.DelegatesClear, keys); err != nil {
		return grant, err
	}
	if err := c.final(ctx, chain, grant.At); err != nil {
		return grant, err
	}
	_, err = fmt.Fprintf(to.out, "%s may join every run of the join authority %s\n", count(uint64(len(grant.Delegates)), "delegate"), join)
	return grant, err
}

// delegateEach changes the delegates of the signing key in each started run. missing is the error if
// there is none.
func (c *grantDelegate) delegateEach(ctx context.Context, to console, join identity.ID, added []coordinator.ClientID, missing error) error {
	runs := 0
	err := c.eachRun(ctx, to, join, func(runID string, at hostFlags) error {
		runs++
		err := c.delegateOne(ctx, to, added, runID, at)
		if errors.Is(err, coordinator.ErrDuplicate) {
			_, err = fmt.Fprintln(to.out, err)
		}
		return err
	})
	if runs == 0 && err == nil {
		return missing
	}
	return err
}
