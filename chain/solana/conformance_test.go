package solana

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

var _ env.Backend = (*Client)(nil)

func TestMain(m *testing.M) {
	flag.Parse()
	// Whole runs mostly wait, so more of them than cores can run at once.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, "chain/solana:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// TestConformance runs the suite on a chain whose clock the suite controls. A chain does not know
// which clients are connected, so it cannot refuse a second connection of a client, or withdraw a
// disconnected client.
func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T, s backendtest.Setup) backendtest.Attach {
		c := newChain(t, 1, 10*time.Millisecond, func() time.Time { return time.UnixMilli(int64(s.Now())) })
		state, err := s.Genesis(coordinator.ClientID{})
		if err != nil {
			t.Fatal(err)
		}
		run := c.create(coordinator.Genesis{RunID: state.RunID, Config: state.Config, Model: state.Model})
		return func(ctx context.Context, key identity.Key) (backendtest.Backend, error) {
			client, err := c.join(ctx, key, run)
			if err != nil {
				return nil, err // not a nil *Client in an interface
			}
			return client, nil
		}
	}, backendtest.OneBackend, backendtest.WithdrawsLost)
}
