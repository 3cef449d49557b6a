package tcp_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T, s backendtest.Setup) backendtest.Attach {
		address := servertest.Start(t, server.Options{
			Runs: []server.Genesis{s.Genesis}, Now: s.Now, WithdrawGrace: s.Grace, Beat: 5 * time.Millisecond,
		}).Address
		return func(ctx context.Context, key identity.Key) (backendtest.Backend, error) {
			c, err := tcp.Dial(ctx, tcp.Options{Addr: address, RunID: backendtest.RunID, Key: key})
			if err != nil {
				return nil, err // not a nil *tcp.Client in an interface
			}
			return c, nil
		}
	})
}
