package solana

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/rpc"
)

// checkFunds returns ErrNoFunds if the key cannot pay for a transaction. Such a transaction would
// never land, and no endpoint would report the reason. checkFunds ignores an endpoint that no other
// endpoint confirms.
func (s *sender) checkFunds(ctx context.Context, lamports uint64) error {
	var failed error
	var most uint64
	answers := 0
	for _, e := range s.trusted(0) {
		has, err := rpc.AnyOf(ctx, []*rpc.Endpoint{e}, func(ctx context.Context, e *rpc.Endpoint) (uint64, error) {
			return e.Balance(ctx, s.key, rpc.Confirmed)
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
		return s.disconnected(ctx, failed)
	}
	return fmt.Errorf("%w: %s has %d lamports and needs %d; send SOL to this address", ErrNoFunds, s.key, most, lamports)
}

// rentPerByte is the rent of the public chains in lamports per byte. An account counts 128 extra
// bytes.
const rentPerByte = 6960

// rentOf returns the rent-exempt minimum of an account of a size, in lamports. It ignores endpoints
// that report much more than the public chains require.
func (s *sender) rentOf(ctx context.Context, size uint64) (uint64, error) {
	rent, err := rpc.AnyOf(ctx, s.trusted(0), func(ctx context.Context, e *rpc.Endpoint) (uint64, error) {
		return e.RentExemption(ctx, size)
	})
	if err != nil {
		return 0, s.disconnected(ctx, err)
	}
	if most := 2 * (size + 128) * rentPerByte; rent > most {
		return 0, fmt.Errorf("an endpoint asks for %d lamports for an account of %d bytes, want at most %d; use another endpoint", rent, size, most)
	}
	return rent, nil
}

// paid adds the costs of a transaction that landed.
func (s *sender) paid(a *attempt, o order) {
	s.accounting.Lock()
	defer s.accounting.Unlock()
	s.costs.Landed++
	s.costs.Lamports += fee(a.units, a.price)
	if o.ticks {
		s.costs.Ticks++
		if !o.inTurn {
			s.costs.OutOfTurn++
		}
	}
}

// missing returns the lamports that an account needs in addition to those already there.
func missing(rent uint64, found *rpc.Account) uint64 {
	if found == nil {
		return rent
	}
	return rent - min(rent, found.Lamports)
}
