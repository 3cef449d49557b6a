package tcp_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/backend/backendtest"
	"github.com/psyche-go/psyche/backend/tcp"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startServer runs a server until the test ends or stop is called, and returns its address.
func startServer(t *testing.T, o server.Options) (address string, stop func()) {
	t.Helper()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	ready := make(chan net.Addr, 1)
	o.Ready = func(a net.Addr) { ready <- a }
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { failed <- server.Run(ctx, o) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := <-failed; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	t.Cleanup(stop)
	select {
	case a := <-ready:
		return a.String(), stop
	case err := <-failed:
		failed <- nil
		t.Fatalf("server: %v", err)
		return "", nil
	}
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T, s backendtest.Setup) backendtest.Attach {
		address, _ := startServer(t, server.Options{
			Runs: []server.Genesis{s.Genesis}, Now: s.Now, WithdrawGrace: s.Grace, Beat: 5 * time.Millisecond,
		})
		return func(ctx context.Context, key identity.Key) (backendtest.Backend, error) {
			c, err := tcp.Dial(ctx, tcp.Options{Addr: address, RunID: backendtest.RunID, Key: key})
			if err != nil {
				return nil, err // not a nil *tcp.Client in an interface
			}
			return c, nil
		}
	})
}
