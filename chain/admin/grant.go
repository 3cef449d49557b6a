package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/chain/transaction"
)

// ErrNoGrant means that a join authority has not authorized a key for all of its runs.
var ErrNoGrant = errors.New("no authorization for all runs")

// grantUnits is the compute limit of an instruction that changes a grant. It compares each new
// delegate with all others.
const grantUnits = 60_000

// Grant is an account in which a join authority authorizes a key and its delegates for all of its
// runs.
type Grant struct {
	layout.Grant
	At       transaction.PublicKey
	Lamports uint64
}

// Grant reads the grant of a join authority to a key. It returns ErrNoGrant if there is none.
func (c *Chain) Grant(ctx context.Context, program, grantor, grantee transaction.PublicKey) (Grant, error) {
	at, err := transaction.Program(program).GrantAddress(grantor, grantee)
	if err != nil {
		return Grant{}, err
	}
	found, err := c.account(ctx, at, nil, rpc.Confirmed)
	if err != nil {
		return Grant{}, err
	}
	if found == nil || found.Owner != program {
		return Grant{}, fmt.Errorf("%w: of %s to %s, in program %s", ErrNoGrant, grantor, grantee, program)
	}
	grant, err := layout.ReadGrant(found.Data)
	switch {
	case err != nil:
		return Grant{}, err
	case transaction.PublicKey(grant.Grantor) != grantor || transaction.PublicKey(grant.Grantee) != grantee:
		return Grant{}, fmt.Errorf("%w: the account %s belongs to another grant", ErrNoGrant, at)
	}
	return Grant{Grant: grant, At: at, Lamports: found.Lamports}, nil
}

// Grants returns the grants of a join authority.
func (c *Chain) Grants(ctx context.Context, program, grantor transaction.PublicKey) ([]Grant, error) {
	found, err := solana.GrantsOf(ctx, c.operator.Pool(), program, grantor)
	if err != nil {
		return nil, err
	}
	var all []Grant
	for _, account := range found {
		grant, err := layout.ReadGrant(account.Data)
		if err != nil || transaction.PublicKey(grant.Grantor) != grantor {
			continue
		}
		at, err := transaction.Program(program).GrantAddress(grantor, grant.Grantee)
		if err != nil || at != account.Key {
			continue // the node made it up
		}
		all = append(all, Grant{Grant: grant, At: at, Lamports: account.Lamports})
	}
	return all, nil
}

// GrantCost returns the cost of a grant with space for a number of delegates.
func (c *Chain) GrantCost(ctx context.Context, delegates int) (Cost, error) {
	cost := Transactions(1)
	var err error
	cost.Rent, err = c.rent(ctx, layout.GrantSize(delegates))
	return cost, err
}

// CreateGrant authorizes a key for all runs whose join authority is the payer.
func (c *Chain) CreateGrant(ctx context.Context, program, grantee transaction.PublicKey, delegates int) error {
	cost, err := c.GrantCost(ctx, delegates)
	if err != nil {
		return err
	}
	if err := c.Need(ctx, cost); err != nil {
		return err
	}
	at, err := transaction.Program(program).GrantAddress(c.Payer(), grantee)
	if err != nil {
		return err
	}
	found, err := c.account(ctx, at, &rpc.Slice{Length: 0}, rpc.Confirmed)
	if err != nil {
		return err
	}
	made, err := transaction.MakeWithSeed(c.Payer(), c.Payer(), transaction.GrantSeed(grantee), missing(cost.Rent, found), uint64(layout.GrantSize(delegates)), program)
	if err != nil {
		return err
	}
	return c.operator.Send(ctx, "create the authorization", grantUnits, append(made, transaction.Program(program).Grant(at, c.Payer(), grantee))...)
}

// Delegate adds delegates to the payer's grant from a join authority, after removing the previous
// ones if clear is set. It needs one transaction for every transaction.MaxRunDelegates keys.
func (c *Chain) Delegate(ctx context.Context, program transaction.PublicKey, g *Grant, clear bool, added []transaction.PublicKey) error {
	for first := true; first || len(added) > 0; first = false {
		part := added[:min(len(added), transaction.MaxRunDelegates)]
		added = added[len(part):]
		in := transaction.Program(program).Delegate(g.At, c.Payer(), clear && first, part)
		if err := c.operator.Send(ctx, "set the delegates", grantUnits, in); err != nil {
			return err
		}
	}
	return nil
}

// FreeGrant ends the payer's grant and returns its lamports to the payer.
func (c *Chain) FreeGrant(ctx context.Context, program transaction.PublicKey, g *Grant) error {
	return c.operator.Send(ctx, "end the authorization", grantUnits, transaction.Program(program).Free(g.At, c.Payer(), c.Payer()))
}

// AwaitGrant waits until the currently confirmed content of a grant's account is finalized.
func (c *Chain) AwaitGrant(ctx context.Context, at transaction.PublicKey) error {
	confirmed, err := c.account(ctx, at, nil, rpc.Confirmed)
	if err != nil {
		return err
	}
	return c.until(ctx, "the chain to make it final", func(ctx context.Context) (bool, error) {
		final, err := c.account(ctx, at, nil, rpc.Finalized)
		if err != nil || (final == nil) != (confirmed == nil) {
			return false, err
		}
		return final == nil || final.Owner == confirmed.Owner && bytes.Equal(final.Data, confirmed.Data), nil
	})
}
