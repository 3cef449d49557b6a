package solana

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Pauses after the chain refused a paid Admit; see Client.enter.
const (
	firstAdmitPause = 30 * time.Second
	lastAdmitPause  = 10 * time.Minute
)

// grants finds grants. Nodes can hide a grant, so each search starts with another node. A false
// grant only costs the fee of a refused transaction.
type grants struct {
	endpoints []*rpc.Endpoint
	program   transaction.PublicKey
	authority *coordinator.Authority // of the run
}

// covering returns the account of a grant by the run's join authority that covers a key. It
// considers only the grant to authorizer, unless authorizer is zero. If the only such grant has no
// room for another key, covering returns coordinator.ErrFull.
func (g grants) covering(ctx context.Context, key, authorizer transaction.PublicKey) (found transaction.PublicKey, ok bool, err error) {
	join, grantee := transaction.PublicKey(g.authority.Join), key
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
	if err != nil {
		return at, false, err
	}
	var all []rpc.KeyedAccount
	if account != nil {
		all = append(all, rpc.KeyedAccount{Key: at, Account: *account})
	}
	found, ok, err = g.first(all, key)
	if ok || authorizer != (transaction.PublicKey{}) {
		return found, ok, err
	}
	if all, err = grantsOf(ctx, g.endpoints, g.program, join); err != nil {
		return at, false, err
	}
	return g.first(all, key)
}

// first returns the first account that is a grant which covers a key and has room for it.
func (g grants) first(accounts []rpc.KeyedAccount, key transaction.PublicKey) (found transaction.PublicKey, ok bool, err error) {
	for _, account := range accounts {
		grant, covers := g.covers(&account.Account, key)
		switch {
		case covers && g.hasRoom(account.Key, grant.Room, key):
			return account.Key, true, nil
		case covers:
			err = coordinator.ErrFull
		}
	}
	return transaction.PublicKey{}, false, err
}

// covers returns an account's grant, and reports whether the program would find that the account is
// a grant of the run's join authority that covers a key.
func (g grants) covers(account *rpc.Account, key transaction.PublicKey) (layout.Grant, bool) {
	grant, err := layout.ReadGrant(account.Data)
	return grant, err == nil && account.Owner == g.program && grant.Grantor == g.authority.Join && grant.Covers(key)
}

// hasRoom reports whether the program would admit a key by a grant, as its function has_room.
func (g grants) hasRoom(at transaction.PublicKey, room int, key transaction.PublicKey) bool {
	others := slices.DeleteFunc(g.authority.Granted(coordinator.ClientID(at)), func(id coordinator.ClientID) bool { return id == coordinator.ClientID(key) })
	return len(others) <= room
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
func (c *Client) grants(authority *coordinator.Authority) grants {
	return grants{endpoints: c.trusted(int(c.searches.Add(1))), program: c.options.Program, authority: authority}
}

// Admits reports whether the run in the newest state admits a key that joins: the run already
// authorizes it, or most of the nodes that answer show a grant of the run's join authority that
// covers the key and has room for it. Thus one node can neither hide a grant nor invent one.
func (c *Client) Admits(ctx context.Context, key transaction.PublicKey) (bool, error) {
	v, _ := c.now()
	authority := &v.state.Authority
	if authority.MayJoin(coordinator.ClientID(key)) {
		return true, nil
	}
	g := c.grants(authority)
	admits, answers := 0, 0
	var failed []error
	for _, e := range g.endpoints {
		one := g
		one.endpoints = []*rpc.Endpoint{e}
		_, ok, err := one.covering(ctx, key, c.options.Authorizer)
		switch {
		case ok:
			admits++
			answers++
		case err == nil || errors.Is(err, coordinator.ErrFull):
			answers++
		default:
			failed = append(failed, err)
		}
	}
	if answers == 0 {
		return false, errors.Join(failed...)
	}
	return 2*admits > answers, nil
}

// enter makes the run admit this client's key, if the run does not admit it yet and a grant covers
// it. Otherwise it does nothing, and the run's rules refuse the Join. After the chain refused an
// Admit, which costs a fee, enter does nothing for a growing time: a node may show a false grant.
func (c *Client) enter(ctx context.Context) error {
	v, _ := c.now()
	authority := &v.state.Authority
	if authority.MayJoin(coordinator.ClientID(c.key)) || !c.mayAdmit(time.Now()) {
		return nil
	}
	grant, ok, err := c.grants(authority).covering(ctx, c.key, c.options.Authorizer)
	switch {
	case errors.Is(err, coordinator.ErrFull):
		c.logger.Warn("the run already admits as many keys by the authorization for all runs as it has places; end admissions with psyche solana join-authorization-delegate --delegates-clear")
	case err != nil:
		c.logger.Warn("cannot search the authorizations for all runs; name the authorized key with --authorizer", "error", err)
	}
	if err != nil || !ok {
		return nil
	}
	err = c.submit(ctx, coordinator.Admit{Grant: coordinator.ClientID(grant), Client: coordinator.ClientID(c.key), Allowed: true})
	if errors.Is(err, coordinator.ErrDuplicate) {
		return nil
	}
	c.admitted(err, time.Now())
	return err
}

// mayAdmit reports whether the client may pay for an Admit.
func (c *Client) mayAdmit(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !now.Before(c.admitAfter)
}

// admitted records the result of an Admit. The pause doubles with each refusal in a row.
func (c *Client) admitted(err error, now time.Time) {
	_, byRules := errors.AsType[coordinator.Code](err)
	_, byProgram := errors.AsType[program.Code](err)
	_, byChain := errors.AsType[*rpc.TransactionError](err)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.admitPause = 0
	case byRules || byProgram || byChain:
		c.admitPause = min(max(2*c.admitPause, firstAdmitPause), lastAdmitPause)
		c.admitAfter = now.Add(c.admitPause)
	}
}
