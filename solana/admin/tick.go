package admin

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/solana/layout"
	"github.com/psyche-go/psyche/solana/program"
	"github.com/psyche-go/psyche/solana/rpc"
	"github.com/psyche-go/psyche/solana/transaction"
)

// tickUnits limits a transaction with a tick.
const tickUnits = 600_000

// Summary reads the beginning of a run's account.
func (c *Chain) Summary(ctx context.Context, run transaction.PublicKey, commitment rpc.Commitment) (layout.Summary, error) {
	found, err := c.account(ctx, run, &rpc.Slice{Length: layout.HeadSize}, commitment)
	if err != nil {
		return layout.Summary{}, err
	}
	if found == nil {
		return layout.Summary{}, fmt.Errorf("%w: no account is at %s", ErrNoRun, run)
	}
	return layout.ReadSummary(found.Data)
}

// Tick moves a run on if that is due, and reports whether it did. When the tick needs a draw of
// the chain, two transactions are needed, and some slots between them.
func (c *Chain) Tick(ctx context.Context, programID, run transaction.PublicKey) (bool, error) {
	before, err := c.Summary(ctx, run, rpc.Confirmed)
	if err != nil {
		return false, err
	}
	for range 2 {
		if err := c.Need(ctx, Transactions(1)); err != nil {
			return false, err
		}
		salt := binary.LittleEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
		if err := c.operator.Send(ctx, "tick", tickUnits, transaction.Program(programID).Tick(run, salt)); err != nil {
			return false, err
		}
		after, err := c.Summary(ctx, run, rpc.Confirmed)
		if err != nil || after.Sequence != before.Sequence {
			return err == nil, err
		}
		if after.Armed == 0 {
			return false, nil // nothing was due
		}
		err = c.until(ctx, "the draw", func(ctx context.Context) (bool, error) {
			slot, err := rpc.Any(ctx, c.operator.Pool(), func(ctx context.Context, e *rpc.Endpoint) (uint64, error) { return e.Slot(ctx, rpc.Processed) })
			return slot > after.Armed+program.DrawWait, err
		})
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// AwaitFinal waits until all that is confirmed of a run now is final.
func (c *Chain) AwaitFinal(ctx context.Context, run transaction.PublicKey) error {
	confirmed, err := c.Summary(ctx, run, rpc.Confirmed)
	if err != nil {
		return err
	}
	return c.until(ctx, "the chain to make it final", func(ctx context.Context) (bool, error) {
		found, err := c.account(ctx, run, &rpc.Slice{Length: layout.HeadSize}, rpc.Finalized)
		if err != nil || found == nil {
			return false, err
		}
		final, err := layout.ReadSummary(found.Data)
		return final.Sequence >= confirmed.Sequence, err
	})
}
