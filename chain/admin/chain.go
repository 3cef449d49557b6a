package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/archive/fetch"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Errors of this package.
var (
	// ErrNoFunds means that the paying key has too few lamports.
	ErrNoFunds = errors.New("too few lamports")
	// ErrCluster means that a node belongs to the wrong chain.
	ErrCluster = errors.New("wrong chain")
	// ErrNoRun means that the chain has no run of that name.
	ErrNoRun = errors.New("no such run on the chain")
	// ErrNotConfigured means that a run has an account but no genesis yet.
	ErrNotConfigured = errors.New("the run is not configured yet")
	// ErrSeveralRuns means that several runs have the same name.
	ErrSeveralRuns = errors.New("several runs have this name")
	// ErrNoProgram means that there is no program at the address.
	ErrNoProgram = errors.New("no program at this address")
	// ErrForeign means that an unknown program is at the address.
	ErrForeign = errors.New("another program is at this address")
	// ErrOpen means that the account cannot be freed because the run is not closed.
	ErrOpen = errors.New("the run is not closed")
	// ErrNotMain means that the operation requires the run's main authority.
	ErrNotMain = errors.New("this key is not the run's main authority")
	// ErrTaken means that an address is already in use.
	ErrTaken = errors.New("the address is taken")
)

// Chain is a connection to the nodes of a chain, with a key that pays.
type Chain struct {
	options  solana.Options
	operator *solana.Operator
}

// Open returns a Chain. It does not connect. It uses only the fields Endpoints, Key, MaxPrice, Pace,
// Transport and Logger of o.
func Open(o solana.Options) (*Chain, error) {
	operator, err := solana.NewOperator(o)
	if err != nil {
		return nil, err
	}
	return &Chain{options: o, operator: operator}, nil
}

// Close closes idle connections.
func (c *Chain) Close() { c.operator.Close() }

// Payer returns the account that pays.
func (c *Chain) Payer() transaction.PublicKey { return c.operator.Key() }

// clusters maps the genesis hashes of the public chains to their names.
var clusters = map[string]string{
	"5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d": "mainnet-beta",
	"4uhcVJyU9pJkvQyUS88uRDiswHXSCkY3zQawwpjTn2NY": "testnet",
	"EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG": "devnet",
}

// Commitment is the confirmation level of an answer.
type Commitment = rpc.Commitment

// Genesis returns the hash of the chain's first block. It returns ErrCluster if the nodes belong to
// different chains.
func (c *Chain) Genesis(ctx context.Context) (transaction.Hash, error) {
	var first transaction.Hash
	for i, e := range c.operator.Pool().Endpoints() {
		hash, err := e.GenesisHash(ctx)
		if err != nil {
			return first, err
		}
		if i == 0 {
			first = hash
		}
		if hash != first {
			return first, fmt.Errorf("%w: %s is on %s, %s on %s; use --rpc nodes of one chain", ErrCluster,
				c.operator.Pool().Endpoints()[0].Name(), nameOf(first), e.Name(), nameOf(hash))
		}
	}
	return first, nil
}

// FetchInto adds a run's new transactions to its archive (see fetch.Into). If a node fails, it asks
// the next node.
func (c *Chain) FetchInto(ctx context.Context, a *archive.Archive, commitment Commitment) (added int, err error) {
	_, err = rpc.Any(ctx, c.operator.Pool(), func(ctx context.Context, e *rpc.Endpoint) (struct{}, error) {
		more, err := fetch.Into(ctx, a, e, commitment)
		added += more
		return struct{}{}, err
	})
	return added, err
}

// Cluster returns the name of the chain. It returns ErrCluster if the nodes belong to different
// chains.
func (c *Chain) Cluster(ctx context.Context) (string, error) {
	genesis, err := c.Genesis(ctx)
	if err != nil {
		return "", err
	}
	return nameOf(genesis), nil
}

func nameOf(genesis transaction.Hash) string {
	if name, public := clusters[genesis.String()]; public {
		return name
	}
	return "a private chain (genesis " + genesis.String() + ")"
}

// Balance returns an account's lamports.
func (c *Chain) Balance(ctx context.Context, key transaction.PublicKey) (uint64, error) {
	return rpc.Any(ctx, c.operator.Pool(), func(ctx context.Context, e *rpc.Endpoint) (uint64, error) {
		return e.Balance(ctx, key, rpc.Confirmed)
	})
}

// Need returns ErrNoFunds if the payer cannot pay cost. The error contains the missing amount and
// how to get it.
func (c *Chain) Need(ctx context.Context, cost Cost) error {
	has, err := c.Balance(ctx, c.Payer())
	if err != nil || has >= cost.Total() {
		return err
	}
	missing := cost.Total() - has
	remedy := "send SOL to this address"
	switch cluster, err := c.Cluster(ctx); {
	case err != nil:
		return err
	case cluster == "mainnet-beta":
	case cluster == "devnet" || cluster == "testnet":
		remedy = "this chain has a faucet: https://faucet.solana.com"
	default:
		remedy = fmt.Sprintf("on a local chain: psyche chain airdrop %s %s --rpc URL", SOL((missing/LamportsPerSOL+1)*LamportsPerSOL), c.Payer())
	}
	return fmt.Errorf("%w: %s has %s SOL and needs %s: %d lamports are missing; %s", ErrNoFunds, c.Payer(), SOL(has), SOL(cost.Total()), missing, remedy)
}

// Airdrop requests lamports from the faucet of a test chain, and waits until they arrive.
func (c *Chain) Airdrop(ctx context.Context, to transaction.PublicKey, lamports uint64) error {
	before, err := c.Balance(ctx, to)
	if err != nil {
		return err
	}
	_, err = rpc.Any(ctx, c.operator.Pool(), func(ctx context.Context, e *rpc.Endpoint) (transaction.Signature, error) {
		return e.Airdrop(ctx, to, lamports)
	})
	if err != nil {
		return fmt.Errorf("airdrop: %w; only test chains have a faucet", err)
	}
	return c.until(ctx, "the airdrop", func(ctx context.Context) (bool, error) {
		now, err := c.Balance(ctx, to)
		return now > before, err
	})
}

// look is the polling interval of until.
const look = 200 * time.Millisecond

// until waits until so returns true.
func (c *Chain) until(ctx context.Context, subject string, so func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		if done, err := so(ctx); err != nil || done {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", subject, context.Cause(ctx))
		}
	}
}

// account reads an account, or a part of it. It returns nil if the account does not exist.
func (c *Chain) account(ctx context.Context, key transaction.PublicKey, part *rpc.Slice, commitment rpc.Commitment) (*rpc.Account, error) {
	return rpc.Any(ctx, c.operator.Pool(), func(ctx context.Context, e *rpc.Endpoint) (*rpc.Account, error) {
		found, _, err := e.Account(ctx, key, rpc.Query{Commitment: commitment, Slice: part})
		return found, err
	})
}

// rent returns the minimum balance of an account of a size.
func (c *Chain) rent(ctx context.Context, size int) (uint64, error) {
	lamports, err := rpc.Any(ctx, c.operator.Pool(), func(ctx context.Context, e *rpc.Endpoint) (uint64, error) {
		return e.RentExemption(ctx, uint64(size))
	})
	if most := uint64(size+accountOverhead) * dearestByte; err == nil && lamports > most {
		return 0, fmt.Errorf("a node asks for %d lamports of rent for %d bytes, want at most %d; use another node", lamports, size, most)
	}
	return lamports, err
}

// Limits of the rent that a node may report: ten times the rent of the public chains.
const (
	accountOverhead = 128   // bytes that are paid in addition to the data
	dearestByte     = 69600 // lamports
)
