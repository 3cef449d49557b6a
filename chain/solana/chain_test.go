package solana

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// chain is a local chain with the program and nodes.
type chain struct {
	t         *testing.T
	ledger    *localnet.Ledger
	server    *localnet.Server
	nodes     []*localnet.Endpoint
	addresses []rpc.Address
	program   transaction.PublicKey
	pace      Pace
}

// mainKey is the main authority of the runs.
func mainKey() identity.Key { return backendtest.Key(200) }

// newChain starts a chain with the given slot time. Its clock shows now, or the real time if now is
// nil.
func newChain(t *testing.T, nodes int, slot time.Duration, now func() time.Time) *chain {
	t.Helper()
	if now == nil {
		now = time.Now
	}
	c := &chain{t: t, program: transaction.PublicKey(backendtest.Key(201).ID())}
	c.ledger = localnet.NewLedger(localnet.Config{Start: now()})
	if err := c.ledger.SetProgram(c.program, program.ELF); err != nil {
		t.Fatal(err)
	}
	c.server = localnet.NewServer(c.ledger, localnet.Options{Slot: slot})
	for range nodes {
		node := c.server.Endpoint()
		listening := httptest.NewServer(node)
		t.Cleanup(listening.Close)
		address, err := rpc.ParseEndpoint(listening.URL)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, node)
		c.addresses = append(c.addresses, address)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(slot)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				c.server.Advance(now())
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait(); c.server.Close() })
	// The same numbers of slots as on a public chain, except for turns. Turns depend on the
	// clients' delays, which shorter slots do not reduce.
	scale := func(d time.Duration) time.Duration { return max(d*slot/(400*time.Millisecond), 5*time.Millisecond) }
	p := defaultPace()
	c.pace = Pace{
		Poll: scale(p.Poll), Fetch: scale(p.Fetch), Prove: scale(p.Prove), Grace: max(scale(p.Grace), 2*time.Second), Peers: scale(p.Peers),
		Resend: scale(p.Resend), Repeat: scale(p.Repeat), Status: scale(p.Status), Turn: p.Turn, Late: scale(p.Late),
	}
	return c
}

// fund gives a key lamports if it has none.
func (c *chain) fund(key identity.Key) {
	c.t.Helper()
	has := func() bool { return c.ledger.At(localnet.Confirmed, 0).Account(transaction.PublicKey(key.ID())) != nil }
	if has() {
		return
	}
	if _, err := c.ledger.Airdrop(transaction.PublicKey(key.ID()), 10_000_000_000); err != nil {
		c.t.Fatal(err)
	}
	for !has() {
		time.Sleep(time.Millisecond)
	}
}

func (c *chain) options(key identity.Key) Options {
	return Options{Endpoints: c.addresses, Program: c.program, Key: key, Pace: c.pace, Logger: testLogger(c.t)}
}

// create begins a run.
func (c *chain) create(genesis coordinator.Genesis) transaction.PublicKey {
	c.t.Helper()
	c.fund(mainKey())
	run, err := Create(c.t.Context(), c.options(mainKey()), genesis)
	if err != nil {
		c.t.Fatal(err)
	}
	return run
}

// join connects to a run with a funded key.
func (c *chain) join(ctx context.Context, key identity.Key, run transaction.PublicKey) (*Client, error) {
	c.fund(key)
	o := c.options(key)
	o.Run, o.RunID, o.Logger = run, "", o.Logger.With("client", key.ID().Short())
	return Dial(ctx, o)
}

// testLogger writes warnings and errors to the test's log until the test ends.
func testLogger(t *testing.T) *slog.Logger {
	var mu sync.Mutex
	ended := false
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
	})
	return slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			t.Logf("%s", b)
		}
		return len(b), nil
	}), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
