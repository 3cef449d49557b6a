package modelsync

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
)

// atOnce is an env.Runtime whose Each starts all calls at the same time.
type atOnce struct{ env.Runtime }

func (atOnce) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, d)
}

func (atOnce) Each(ctx context.Context, _, count int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// TestListsHaveTimeOnASlowLink checks that eight members can send lists of 30 rounds with 16
// results over one link of 0.25 Mbit/s. All lists arrive. If three members are silent, the wait
// ends no later than listTime after requestTimeout.
func TestListsHaveTimeOnASlowLink(t *testing.T) {
	for _, silent := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			const rounds = 30
			o := &Options{Tasks: &env.Tasks{Runtime: atOnce{}, Work: t.Context()}, Log: slog.New(slog.DiscardHandler)}
			var peers []identity.ID
			for i := range 15 {
				peers = append(peers, identity.ID{byte(i)})
			}
			takes := time.Duration(8*exchange.ListSize(rounds, 16)) * time.Second / slowLink
			begun := time.Now()
			got := o.accounts(t.Context(), peers, rounds, func(ctx context.Context, peer identity.ID) (account, bool, error) {
				wait := takes
				if int(peer[0]) < silent {
					wait = time.Hour
				}
				select {
				case <-time.After(wait):
					return account{}, true, nil
				case <-ctx.Done():
					return account{}, false, ctx.Err()
				}
			})
			if len(got) != 1 || silent == 0 && len(got[0].holders) < 6 || time.Since(begun) > requestTimeout+listTime {
				t.Errorf("%d silent: %d accounts after %v", silent, len(got), time.Since(begun))
			}
		})
	}
}
