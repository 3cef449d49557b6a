package solana

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Compute limits of transactions: the need of the most expensive action and tick, with a margin.
const (
	actUnits   = 150_000
	tickUnits  = 600_000
	shareUnits = 1_100_000 // of a tick in a run with shares by speed or with lost sequences
	maxUnits   = 1_400_000 // of any transaction
	writeUnits = 40_000
	otherUnits = 60_000 // creating an account and announcing addresses
)

// Prices in millionths of a lamport per compute unit.
const (
	// defaultMaxPrice limits the price.
	defaultMaxPrice = 50_000
	// firstRaise is the price of the second signature if no other transaction pays a price.
	firstRaise = 1_000
)

// price returns the price for a transaction that was signed attempt times before: the 75th
// percentile of recent prices, doubled for each attempt, at most limit.
func price(recent []uint64, attempt int, limit uint64) uint64 {
	var offered uint64
	if len(recent) > 0 {
		sorted := slices.Sorted(slices.Values(recent))
		offered = sorted[(len(sorted)-1)*3/4]
	}
	for i := range attempt {
		switch {
		case offered >= limit:
			return limit
		case i == 0 && offered < firstRaise:
			offered = firstRaise
		default:
			offered = min(offered, math.MaxUint64/2) * 2
		}
	}
	return min(offered, limit)
}

// fee returns the cost of a transaction with one signature, in lamports.
func fee(units uint32, microLamports uint64) uint64 {
	if microLamports > math.MaxUint64/uint64(max(units, 1)) {
		return math.MaxUint64
	}
	paid := uint64(units) * microLamports
	return transaction.SignatureFee + paid/1_000_000 + min(paid%1_000_000, 1)
}

// Times for the prices of other transactions.
const (
	feesLast = 15 * time.Second // validity of cached prices
	feesWait = 5 * time.Second  // limit for an answer
)

// feeCache caches recent prices.
type feeCache struct {
	limit uint64

	mu          sync.Mutex
	recent      []uint64
	lastRequest time.Time
}

// priceFor returns the price for a transaction that was signed attempt times before. If no endpoint
// answers, it uses the previous prices.
func (s *sender) priceFor(ctx context.Context, o *order, attempt int) uint64 {
	f := &s.fees
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.lastRequest) >= feesLast {
		f.lastRequest = now
		ctx, cancel := context.WithTimeout(ctx, feesWait)
		defer cancel()
		recent, err := rpc.AnyOf(ctx, s.trusted(0), func(ctx context.Context, e *rpc.Endpoint) ([]uint64, error) {
			return e.PrioritizationFees(ctx, written(o))
		})
		if err != nil {
			s.logger.Debug("cannot read recent fees", "error", err)
		} else {
			f.recent = recent
		}
	}
	return price(f.recent, attempt, f.limit)
}

// written returns the accounts that an order writes to, except the payer's. Other transactions that
// write to them compete with the order.
func written(o *order) (keys []transaction.PublicKey) {
	for _, in := range o.instructions {
		for _, account := range in.Accounts {
			if account.Writable && !account.Signer && !slices.Contains(keys, account.Key) {
				keys = append(keys, account.Key)
			}
		}
	}
	return keys
}
