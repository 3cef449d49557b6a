package admin

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Summary reads the first layout.HeadSize bytes of a run's account.
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

// AwaitFinal waits until the currently confirmed state of a run is finalized.
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
