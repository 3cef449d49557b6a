package solana

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/rpc"
)

// checkFunds returns ErrNoFunds when the key cannot pay: such a transaction never lands, and no
// endpoint says why. One that is alone in saying so is not believed.
func (c *sender) checkFunds(ctx context.Context, lamports uint64) error {
	var failed error
	var most uint64
	answers := 0
	for _, e := range c.trusted(0) {
		has, err := rpc.AnyOf(ctx, []*rpc.Endpoint{e}, func(ctx context.Context, e *rpc.Endpoint) (uint64, error) {
			return e.Balance(ctx, c.key, rpc.Confirmed)
		})
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case has >= lamports:
			return nil
		default:
			most, answers = max(most, has), answers+1
		}
	}
	if answers == 0 {
		return c.disconnected(ctx, failed)
	}
	return fmt.Errorf("%w: %s has %d lamports, and needs %d; send it some", ErrNoFunds, c.key, most, lamports)
}

// rentPerByte is what the public chains want for a byte, in lamports; an account counts 128 more.
const rentPerByte = 6960

// rentOf returns the lamports that an account of a size has to hold. An endpoint that wants much
// more than the public chains do is not believed.
func (c *sender) rentOf(ctx context.Context, size uint64) (uint64, error) {
	rent, err := rpc.AnyOf(ctx, c.trusted(0), func(ctx context.Context, e *rpc.Endpoint) (uint64, error) {
		return e.RentExemption(ctx, size)
	})
	if err != nil {
		return 0, c.disconnected(ctx, err)
	}
	if most := 2 * (size + 128) * rentPerByte; rent > most {
		return 0, fmt.Errorf("an endpoint wants %d lamports for an account of %d bytes, at most %d are reasonable; use another endpoint", rent, size, most)
	}
	return rent, nil
}

// paid notes the costs of what landed.
func (c *sender) paid(a *attempt, o order) {
	c.accounting.Lock()
	defer c.accounting.Unlock()
	c.costs.Landed++
	c.costs.Lamports += fee(a.units, a.price)
	if o.ticks {
		c.costs.Ticks++
		if !o.inTurn {
			c.costs.OutOfTurn++
		}
	}
}

// missing returns the lamports that an account needs beside those that somebody sent there.
func missing(rent uint64, found *rpc.Account) uint64 {
	if found == nil {
		return rent
	}
	return rent - min(rent, found.Lamports)
}
