package solana

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/record/backend"
)

// announcePause is the pause after a failed announcement.
const announcePause = 10 * time.Second

// Announce sets the participant's peer-to-peer addresses; see package backend. The client writes
// them to the chain as soon as it can. It drops addresses at the end that do not fit into a
// transaction, and logs this.
func (c *Client) Announce(_ context.Context, addrs []string) error {
	if err := backend.CheckAddrs(addrs); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.ctx.Err() != nil {
		return fmt.Errorf("announce: %w", backend.ErrClosed)
	}
	c.addrs = slices.Clone(addrs)
	poke(c.post)
	return nil
}

// announce keeps this client's addresses on the chain.
func (c *Client) announce() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.post:
		}
		c.mu.Lock()
		addrs := c.addrs
		c.mu.Unlock()
		err := c.writeAddrs(c.ctx, addrs)
		if err == nil || c.ctx.Err() != nil {
			continue
		}
		c.logger.Warn("cannot announce the addresses on the chain", "error", err)
		timer := time.NewTimer(announcePause)
		select {
		case <-timer.C:
			poke(c.post)
		case <-c.post:
			poke(c.post)
		case <-c.ctx.Done():
		}
		timer.Stop()
	}
}

// writeAddrs creates the account of this client's addresses, if necessary, and writes them into it.
func (c *Client) writeAddrs(ctx context.Context, addrs []string) error {
	peer, err := c.program.PeerAddress(c.key, c.run)
	if err != nil {
		return err
	}
	if fit := c.fitting(peer, addrs); fit < len(addrs) {
		c.logger.Warn("not all addresses fit into a transaction: announcing the first ones", "addresses", len(addrs), "announced", fit)
		addrs = addrs[:fit]
	}
	found, err := rpc.AnyOf(ctx, c.trusted(0), func(ctx context.Context, e *rpc.Endpoint) (*rpc.Account, error) {
		account, _, err := e.Account(ctx, peer, rpc.Query{Commitment: rpc.Confirmed})
		return account, err
	})
	if err != nil {
		return err
	}
	if found == nil || found.Owner != c.options.Program {
		if err := c.createPeer(ctx, peer, found); err != nil {
			return err
		}
	}
	known := layout.Peer{}
	if found != nil {
		known, err = layout.ReadPeer(found.Data)
	}
	if found == nil || err != nil || found.Owner != c.options.Program || !slices.Equal(known.Addrs, addrs) {
		err = c.bring(ctx, order{
			name: "announcement", units: otherUnits,
			instructions: []transaction.Instruction{c.program.Announce(peer, c.key, c.run, addrs)},
		})
		if err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced = addrs
	return nil
}

// fitting returns how many of the addresses fit into a transaction.
func (c *Client) fitting(peer transaction.PublicKey, addrs []string) int {
	for n := len(addrs); n > 0; n-- {
		_, err := transaction.Compile(c.key, transaction.Hash{}, transaction.ComputeUnitLimit(0), transaction.ComputeUnitPrice(0),
			c.program.Announce(peer, c.key, c.run, addrs[:n]))
		if err == nil {
			return n
		}
	}
	return 0
}

// createPeer creates the account of this client's addresses. The announcement must follow at once.
// found is nil, or an account that only holds lamports.
func (c *Client) createPeer(ctx context.Context, peer transaction.PublicKey, found *rpc.Account) error {
	rent, err := c.rentOf(ctx, layout.PeerSize)
	if err != nil {
		return err
	}
	if err := c.checkFunds(ctx, rent+2*transaction.SignatureFee); err != nil {
		return err
	}
	rent = missing(rent, found)
	made, err := transaction.MakeWithSeed(c.key, c.key, transaction.PeerSeed(c.run), rent, layout.PeerSize, c.options.Program)
	if err != nil {
		return err
	}
	err = c.bring(ctx, order{
		name: "account of addresses", units: otherUnits, instructions: append(made, c.program.Announce(peer, c.key, c.run, nil)),
	})
	if err != nil {
		return err
	}
	c.accounting.Lock()
	c.costs.Rent += rent
	c.accounting.Unlock()
	return nil
}

// followPeers keeps the addresses of the participants up to date.
func (c *Client) followPeers() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.call:
		case <-timer.C:
		}
		if err := c.fetchPeers(c.ctx); err != nil && c.ctx.Err() == nil {
			c.logger.Warn("cannot read the addresses of the other members", "error", err)
		}
		timer.Reset(c.pace.Peers)
		pause := time.NewTimer(c.pace.Fetch) // combines changes in quick succession into one fetch
		select {
		case <-c.ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// fetchPeers reads the accounts of all participants. It keeps the known addresses of a participant
// whose account is missing or unreadable.
func (c *Client) fetchPeers(ctx context.Context) error {
	v, _ := c.now()
	ids := participants(v.state)
	fetched := make(map[identity.ID][]string)
	for chunk := range slices.Chunk(ids, rpc.MaxAccounts) {
		keys := make([]transaction.PublicKey, len(chunk))
		for i, id := range chunk {
			var err error
			if keys[i], err = c.program.PeerAddress(id, c.run); err != nil {
				return err
			}
		}
		found, err := rpc.AnyOf(ctx, c.trusted(0), func(ctx context.Context, e *rpc.Endpoint) ([]*rpc.Account, error) {
			accounts, _, err := e.Accounts(ctx, keys, rpc.Query{Commitment: rpc.Confirmed})
			return accounts, err
		})
		if err != nil {
			return err
		}
		for i, account := range found {
			if account == nil || account.Owner != c.options.Program {
				continue
			}
			peer, err := layout.ReadPeer(account.Data)
			if err != nil || transaction.PublicKey(peer.Owner) != chunk[i] || transaction.PublicKey(peer.Run) != c.run {
				c.logger.Debug("an account of addresses is invalid", "client", chunk[i], "error", err)
				continue
			}
			fetched[identity.ID(chunk[i])] = peer.Addrs
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := false
	for id, addrs := range fetched {
		if !slices.Equal(c.peers[id], addrs) {
			changed = true
			c.peers[id] = addrs
		}
	}
	c.forgetPeers()
	if now := time.Now(); c.announced != nil && slices.Contains(ids, c.key) && now.Sub(c.repaired) >= c.pace.Peers &&
		!slices.Equal(fetched[identity.ID(c.key)], c.announced) {
		c.repaired = now
		poke(c.post) // a rollback, or another client with this key announced different addresses
	}
	if changed {
		c.publish()
	}
	return nil
}

// forgetPeers drops former participants if there are too many peers. The caller holds mu.
func (c *Client) forgetPeers() {
	if len(c.peers) <= backend.MaxPeers {
		return
	}
	taking := participants(c.view.state)
	for id := range c.peers {
		if !slices.Contains(taking, transaction.PublicKey(id)) {
			delete(c.peers, id)
		}
	}
}
