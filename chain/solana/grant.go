package solana

import (
	"context"
	"errors"
	"slices"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// grants finds grants. Nodes can hide a grant, so each search starts with another node. A false
// grant only costs the fee of a refused transaction.
type grants struct {
	endpoints []*rpc.Endpoint
	program   transaction.PublicKey
}

// covering returns the account of a grant by a join authority that covers a key. If authorizer is
// not zero, it is the grantee.
func (g grants) covering(ctx context.Context, join, key, authorizer transaction.PublicKey) (found transaction.PublicKey, ok bool, err error) {
	grantee := key
	if authorizer != (transaction.PublicKey{}) {
		grantee = authorizer
	}
	at, err := transaction.Program(g.program).GrantAddress(join, grantee)
	if err != nil {
		return at, false, err
	}
	account, err := rpc.AnyOf(ctx, g.endpoints, func(ctx context.Context, e *rpc.Endpoint) (*rpc.Account, error) {
		account, _, err := e.Account(ctx, at, rpc.Query{Commitment: rpc.Confirmed})
		return account, err
	})
	if err != nil || account != nil && g.covers(account, join, key) {
		return at, err == nil, err
	}
	if authorizer != (transaction.PublicKey{}) {
		return at, false, nil
	}
	all, err := grantsOf(ctx, g.endpoints, g.program, join)
	if err != nil {
		return at, false, err
	}
	i := slices.IndexFunc(all, func(account rpc.KeyedAccount) bool { return g.covers(&account.Account, join, key) })
	if i < 0 {
		return at, false, nil
	}
	return all[i].Key, true, nil
}

// covers reports whether the program would find that an account is a grant of a join authority that
// covers a key.
func (g grants) covers(account *rpc.Account, join, key transaction.PublicKey) bool {
	grant, err := layout.ReadGrant(account.Data)
	return err == nil && account.Owner == g.program && grant.Grantor == join && grant.Covers(key)
}

// GrantsOf returns the accounts that a node shows as grants of a join authority. They are unchecked.
func GrantsOf(ctx context.Context, pool *rpc.Pool, program, join transaction.PublicKey) ([]rpc.KeyedAccount, error) {
	return grantsOf(ctx, pool.ByHealth(), program, join)
}

// grantsOf is GrantsOf for nodes in the caller's order.
func grantsOf(ctx context.Context, endpoints []*rpc.Endpoint, program, join transaction.PublicKey) ([]rpc.KeyedAccount, error) {
	filters := []rpc.Filter{{Offset: 0, Bytes: []byte(layout.GrantMagic)}, {Offset: layout.GrantorOffset, Bytes: join[:]}}
	return rpc.AnyOf(ctx, endpoints, func(ctx context.Context, e *rpc.Endpoint) ([]rpc.KeyedAccount, error) {
		return e.ProgramAccounts(ctx, program, 0, filters, rpc.Query{Commitment: rpc.Confirmed})
	})
}

// grants returns a search that starts with another node each time.
func (c *Client) grants() grants {
	return grants{endpoints: c.trusted(int(c.searches.Add(1))), program: c.options.Program}
}

// Admits reports whether the run in the newest state admits a key that joins: the run already
// authorizes it, or a grant of the run's join authority covers it.
func (c *Client) Admits(ctx context.Context, key transaction.PublicKey) (bool, error) {
	v, _ := c.now()
	authority := &v.state.Authority
	if authority.MayJoin(coordinator.ClientID(key)) {
		return true, nil
	}
	_, ok, err := c.grants().covering(ctx, transaction.PublicKey(authority.Join), key, c.options.Authorizer)
	return ok, err
}

// enter makes the run admit this client's key, if the run does not admit it yet and a grant covers
// it. Otherwise it does nothing, and the run's rules refuse the Join.
func (c *Client) enter(ctx context.Context) error {
	v, _ := c.now()
	authority := &v.state.Authority
	if authority.MayJoin(coordinator.ClientID(c.key)) {
		return nil
	}
	grant, ok, err := c.grants().covering(ctx, transaction.PublicKey(authority.Join), c.key, c.options.Authorizer)
	if err != nil {
		c.logger.Warn("cannot search the authorizations for all runs; name the authorized key with --authorizer", "error", err)
	}
	if err != nil || !ok {
		return nil
	}
	err = c.submit(ctx, coordinator.Admit{Grant: coordinator.ClientID(grant), Client: coordinator.ClientID(c.key), Allowed: true})
	if errors.Is(err, coordinator.ErrDuplicate) {
		return nil
	}
	return err
}
