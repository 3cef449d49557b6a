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

// Compute units that transactions are limited to: what the dearest action and tick need, with
// room to spare.
const (
	actUnits   = 150_000
	tickUnits  = 600_000
	maxUnits   = 1_400_000
	writeUnits = 40_000
	otherUnits = 60_000 // creating an account and announcing addresses
)

// Prices in millionths of a lamport for a compute unit.
const (
	// defaultMaxPrice bounds what is offered.
	defaultMaxPrice = 50_000
	// firstRaise is offered for the second signature where nobody offers anything.
	firstRaise = 1_000
)

// price returns what is offered for a transaction that was signed attempt times before: the
// 75th percentile of what was paid lately, doubled each time, at most limit.
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

// fee returns what a transaction of one signature costs, in lamports.
func fee(units uint32, microLamports uint64) uint64 {
	if microLamports > math.MaxUint64/uint64(max(units, 1)) {
		return math.MaxUint64
	}
	paid := uint64(units) * microLamports
	return transaction.SignatureFee + paid/1_000_000 + min(paid%1_000_000, 1)
}

// Times of what others paid.
const (
	feesLast = 15 * time.Second // for which it is taken to be what it was
	feesWait = 5 * time.Second  // for an answer
)

// feeCache remembers what was paid lately.
type feeCache struct {
	limit uint64

	mu     sync.Mutex
	recent []uint64
	asked  time.Time
}

// priceFor returns what to offer for a transaction that was signed attempt times before. When
// nobody answers, it is what was paid before.
func (c *sender) priceFor(ctx context.Context, o *order, attempt int) uint64 {
	f := &c.fees
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.asked) >= feesLast {
		f.asked = now
		ctx, cancel := context.WithTimeout(ctx, feesWait)
		defer cancel()
		recent, err := rpc.AnyOf(ctx, c.trusted(0), func(ctx context.Context, e *rpc.Endpoint) ([]uint64, error) {
			return e.PrioritizationFees(ctx, written(o))
		})
		if err != nil {
			c.logger.Debug("cannot read recent fees", "error", err)
		} else {
			f.recent = recent
		}
	}
	return price(f.recent, attempt, f.limit)
}

// written returns the accounts that an order writes to, beside the payer's: other transactions
// that write to them compete with it.
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
