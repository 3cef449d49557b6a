package solana

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Limits of one proof.
const (
	maxProof  = 400 // transactions
	proofTime = 30 * time.Second
)

// maxAhead limits how far an event's time may be ahead of the estimated chain time, in
// milliseconds. A client that accepted a state from the future would stop.
const maxAhead = 10_000

// prove starts a replay toward a newer state that only few endpoints show, if the disagreement has
// lasted long enough. The replay needs a known state to start from.
func (w *watcher) prove(now time.Time) {
	c, a := w.client, w.agreement
	if w.proving || a.accepted.account == nil || w.disagree.IsZero() || now.Sub(w.disagree) < c.pace.Prove {
		return
	}
	for i := range a.witnesses {
		newest, ok := a.witnesses[i].newest()
		if !ok || newest.account == nil || newest.sequence <= a.accepted.sequence || a.witnesses[i].fault != noFault {
			continue
		}
		from, latest := a.accepted, c.chainTime(now)
		w.proving = true
		c.running.Go(func() {
			o := observation{endpoint: i, proving: true}
			ctx, cancel := context.WithTimeout(c.ctx, proofTime)
			defer cancel()
			if err := c.replayTo(ctx, c.pool.Endpoints()[i], from, newest, latest+maxAhead); err != nil {
				c.logger.Warn("cannot verify a state that one endpoint shows", "endpoint", c.pool.Endpoints()[i].Name(), "error", err)
			} else {
				o.proved = &newest
			}
			c.tell(o)
		})
		w.disagree = now // the next proof has to wait too
		return
	}
}

// chainTime returns the chain's time.
func (c *Client) chainTime(now time.Time) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.now(now)
}

// replayTo fetches the transactions between two states from an endpoint and applies them.
func (c *Client) replayTo(ctx context.Context, e *rpc.Endpoint, from, to sighting, latest uint64) error {
	names, err := e.History(ctx, c.run, transaction.Signature{}, transaction.Signature{}, maxProof, rpc.Confirmed)
	if err != nil {
		return err
	}
	slices.Reverse(names)
	p := newProof(c.options.Program, c.run, from.account)
	for _, named := range names {
		if named.Err != nil || named.Slot < from.account.Slot {
			continue
		}
		landed, err := e.Transaction(ctx, named.Signature, rpc.Confirmed)
		if err != nil {
			return err
		}
		if landed == nil {
			return fmt.Errorf("%w: the endpoint does not know transaction %s", errReplay, named.Signature)
		}
		if old, err := p.isOld(landed); err != nil || old {
			if err != nil {
				return err
			}
			continue
		}
		if err := p.follow(landed); err != nil {
			return err
		}
		if p.now > latest {
			return fmt.Errorf("%w: an event has a future time", errReplay)
		}
		if p.shows(&to) {
			return nil
		}
	}
	return fmt.Errorf("%w: the transactions lead to event %d, but the state belongs to event %d", errReplay, p.run.Sequence, to.sequence)
}

// isOld reports whether the state already contains a transaction: it is in the slot of the newest
// change, at or before that change.
func (p *proof) isOld(landed *rpc.Landed) (bool, error) {
	instructions, err := p.instructions(landed)
	if err != nil {
		return false, err
	}
	old := false
	for _, d := range instructions {
		for _, e := range d.events {
			old = e.Sequence <= p.run.Sequence
		}
	}
	return old, nil
}
