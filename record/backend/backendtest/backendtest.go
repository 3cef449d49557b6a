package backendtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
)

// waitTimeout is the timeout of every wait in the suite.
const waitTimeout = 30 * time.Second

// Backend is the contract of package backend as an interface.
type Backend interface {
	Updates() <-chan backend.Update
	Submit(ctx context.Context, a coordinator.Action) error
	Announce(ctx context.Context, addrs []string) error
	Err() error
	Close() error
}

// Setup contains settings that a host under test must use.
type Setup struct {
	Genesis func(host coordinator.ClientID) (coordinator.State, error)
	Now     func() uint64 // Unix time in milliseconds; advances only when the suite advances it
	Grace   time.Duration // grace period for participants without a backend
}

// Attach connects a participant to the host. The suite closes the returned Backend.
type Attach func(ctx context.Context, key identity.Key) (Backend, error)

// Promise is a guarantee of package backend that some hosts cannot give.
type Promise string

// Guarantees that a host may lack. For each of them, the suite then checks the opposite behaviour.
const (
	// OneBackend: the host refuses a second live backend of a key.
	OneBackend Promise = "one key has one live backend"
	// WithdrawsLost: the host withdraws a client without a backend for the grace period.
	WithdrawsLost Promise = "a client that is gone is withdrawn"
)

// RunID is the ID of the run that the suite uses.
const RunID = "conformance"

// Genesis returns the first state of a small run for tests. The run starts with initMinClients
// clients, and every phase times out after a minute.
func Genesis(runID string, initMinClients uint16) func(coordinator.ClientID) (coordinator.State, error) {
	return func(host coordinator.ClientID) (coordinator.State, error) {
		return coordinator.New(runID, host, coordinator.Config{
			WarmupTime: 60_000, CooldownTime: 60_000, RoundsPerEpoch: 4, MaxRoundTrainTime: 60_000, RoundWitnessTime: 1000,
			WaitingForMembersExtraTime: 1000, GlobalBatchSizeStart: 64, GlobalBatchSizeEnd: 64, TotalSteps: 8,
			InitMinClients: initMinClients, MinClients: 1,
		}, coordinator.Model{MaxSeqLen: 16, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}})
	}
}

// Key returns the n-th test key.
func Key(n byte) identity.Key { return identity.FromSeed([identity.SeedSize]byte{n}) }

// fixture is a running host and its clock.
type fixture struct {
	attach Attach
	clock  atomic.Uint64
}

// client is an attached backend. A goroutine always takes its newest update.
type client struct {
	Backend
	t  *testing.T
	id coordinator.ClientID
}

// Run runs the suite against a host that gives all guarantees except those in without.
func Run(t *testing.T, start func(*testing.T, Setup) Attach, without ...Promise) {
	type entry struct {
		name string
		test func(*testing.T, *fixture)
	}
	tests := []entry{
		{"the first update comes by itself", testFirstUpdate},
		{"accepted actions show everywhere", testSubmit},
		{"refusals keep their code", testRefusal},
		{"the clock moves the run", testClock},
		{"concurrent actions are all answered", testConcurrentSubmits},
		{"a slow reader gets the newest state", testNewestWins},
		{"a reader owns its update", testOwnership},
		{"addresses reach everybody", testAnnounce},
		{"bad addresses are refused", testBadAddresses},
		{"a context ends a submit", testSubmitContext},
		{"close is final and idempotent", testClose},
	}
	if slices.Contains(without, OneBackend) {
		tests = append(tests, entry{"two backends of a key do no harm", testTwoBackends})
	} else {
		tests = append(tests, entry{"a second backend of a key is refused", testDuplicateKey})
	}
	if slices.Contains(without, WithdrawsLost) {
		tests = append(tests, entry{"a client that is gone stays, and comes back as it was", testStays})
	} else {
		tests = append(tests, entry{"a client that is gone is withdrawn", testWithdraw}, entry{"a client that comes back may join again", testComeBack})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &fixture{}
			f.clock.Store(1_000_000_000)
			f.attach = start(t, Setup{Genesis: Genesis(RunID, 3), Now: f.clock.Load, Grace: 20 * time.Millisecond})
			test.test(t, f)
		})
	}
}

// connect attaches the n-th client.
func (f *fixture) connect(t *testing.T, n byte) *client {
	t.Helper()
	b, err := f.attach(t.Context(), Key(n))
	if err != nil {
		t.Fatalf("attach client %d: %v", n, err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return &client{Backend: b, t: t, id: coordinator.ClientID(Key(n).ID())}
}

// await returns the first update for which done is true.
func (c *client) await(subject string, done func(backend.Update) bool) backend.Update {
	c.t.Helper()
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	for {
		select {
		case u, ok := <-c.Updates():
			if !ok {
				c.t.Fatalf("updates were closed (%v) while waiting for %s", c.Err(), subject)
			}
			if u.State == nil {
				c.t.Fatal("an update without a state")
			}
			if done(u) {
				return u
			}
		case <-timer.C:
			c.t.Fatalf("no update with %s", subject)
		}
	}
}

func anything(backend.Update) bool { return true }

func (c *client) submit(a coordinator.Action) {
	c.t.Helper()
	if err := c.Submit(c.t.Context(), a); err != nil {
		c.t.Fatal(err)
	}
}

func pending(ids ...coordinator.ClientID) func(backend.Update) bool {
	return func(u backend.Update) bool {
		for _, id := range ids {
			if !slices.ContainsFunc(u.State.Pending, func(c coordinator.Client) bool { return c.ID == id }) {
				return false
			}
		}
		return len(u.State.Pending) == len(ids)
	}
}

func inState(s coordinator.RunState) func(backend.Update) bool {
	return func(u backend.Update) bool { return u.State.RunState == s }
}

func testFirstUpdate(t *testing.T, f *fixture) {
	u := f.connect(t, 1).await("anything", anything)
	if u.State.RunID != RunID || u.State.RunState != coordinator.WaitingForMembers {
		t.Fatalf("run %q in %v", u.State.RunID, u.State.RunState)
	}
}

func testSubmit(t *testing.T, f *fixture) {
	a, b := f.connect(t, 1), f.connect(t, 2)
	a.submit(coordinator.Join{Name: "Ada"})
	a.await("itself", pending(a.id))
	b.await("the other", pending(a.id))
	b.submit(coordinator.Join{})
	a.await("both", pending(a.id, b.id))
	b.await("both", pending(a.id, b.id))
}

func testRefusal(t *testing.T, f *fixture) {
	a := f.connect(t, 1)
	err := a.Submit(t.Context(), coordinator.Ready{})
	if !errors.Is(err, coordinator.ErrWrongState) {
		t.Fatalf("error %v, want ErrWrongState", err)
	}
	err = a.Submit(t.Context(), coordinator.SetPaused{Paused: true})
	if !errors.Is(err, coordinator.ErrNotAuthorised) {
		t.Fatalf("error %v, want ErrNotAuthorised", err)
	}
	a.submit(coordinator.Join{}) // the refusal must leave the connection usable
}

func testClock(t *testing.T, f *fixture) {
	clients := []*client{f.connect(t, 1), f.connect(t, 2), f.connect(t, 3)}
	for _, c := range clients {
		c.submit(coordinator.Join{})
	}
	clients[0].await("three pending", func(u backend.Update) bool { return len(u.State.Pending) == 3 })
	stop := f.letTimePass()
	defer stop()
	warm := clients[0].await("warmup", inState(coordinator.Warmup))
	stop()
	clients[0].submit(coordinator.Ready{Epoch: warm.State.Progress.Epoch})
	for _, c := range clients[1:] {
		u := c.await("warmup", inState(coordinator.Warmup))
		c.submit(coordinator.Ready{Epoch: u.State.Progress.Epoch})
	}
	for _, c := range clients {
		u := c.await("the first round", inState(coordinator.RoundTrain))
		if round := u.State.CurrentRound(); round == nil || round.Step != 1 || len(round.Members) != 3 {
			t.Fatalf("round %+v", round)
		}
	}
}

// letTimePass advances the clock by a second every 100 ms until stop is called. Repeated advances
// are necessary, because some hosts learn the time only from participants and notice it only now
// and then.
func (f *fixture) letTimePass() (stop func()) {
	done := make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			f.clock.Add(1000)
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
	})
	return sync.OnceFunc(func() { close(done); passing.Wait() })
}

func testConcurrentSubmits(t *testing.T, f *fixture) {
	a := f.connect(t, 1)
	var accepted atomic.Int32
	var working sync.WaitGroup
	for range 32 {
		working.Go(func() {
			err := a.Submit(t.Context(), coordinator.Join{})
			switch {
			case err == nil:
				accepted.Add(1)
			case !errors.Is(err, coordinator.ErrDuplicate):
				t.Errorf("error %v, want nil or ErrDuplicate", err)
			}
		})
	}
	working.Wait()
	if accepted.Load() != 1 {
		t.Fatalf("%d of 32 copies were accepted", accepted.Load())
	}
}

func testNewestWins(t *testing.T, f *fixture) {
	slow, a, last := f.connect(t, 1), f.connect(t, 2), f.connect(t, 3)
	for range 50 {
		a.submit(coordinator.Join{})
		a.submit(coordinator.Withdraw{Client: a.id})
	}
	last.submit(coordinator.Join{})
	updates := 0
	slow.await("the last join", func(u backend.Update) bool {
		updates++
		return pending(last.id)(u)
	})
	if updates > 60 {
		t.Fatalf("a slow reader got %d updates", updates)
	}
}

func testOwnership(t *testing.T, f *fixture) {
	a, b := f.connect(t, 1), f.connect(t, 2)
	a.submit(coordinator.Join{})
	ua := a.await("itself", pending(a.id))
	ub := b.await("the other", pending(a.id))
	ua.State.Pending[0].ID = coordinator.ClientID{}
	if ub.State.Pending[0].ID != a.id {
		t.Fatal("two readers share a state")
	}
	b.submit(coordinator.Join{})
	a.await("an untouched state", pending(a.id, b.id))
}

func testAnnounce(t *testing.T, f *fixture) {
	a, b := f.connect(t, 1), f.connect(t, 2)
	addrs := []string{"/ip4/127.0.0.1/udp/4001/quic-v1", "/ip4/127.0.0.1/tcp/4001"}
	if err := a.Announce(t.Context(), addrs); err != nil {
		t.Fatal(err)
	}
	a.submit(coordinator.Join{})
	b.submit(coordinator.Join{})
	has := func(id coordinator.ClientID, want []string) func(backend.Update) bool {
		return func(u backend.Update) bool {
			return slices.ContainsFunc(u.Peers, func(p backend.Peer) bool {
				return p.ID == identity.ID(id) && slices.Equal(p.Addrs, want)
			})
		}
	}
	b.await("the addresses", has(a.id, addrs))
	if err := a.Announce(t.Context(), addrs[:1]); err != nil {
		t.Fatal(err)
	}
	u := b.await("the new addresses", has(a.id, addrs[:1]))
	if !slices.IsSortedFunc(u.Peers, func(p, q backend.Peer) int { return slices.Compare(p.ID[:], q.ID[:]) }) {
		t.Fatalf("peers are not sorted: %v", u.Peers)
	}
}

func testBadAddresses(t *testing.T, f *fixture) {
	a := f.connect(t, 1)
	for name, addrs := range map[string][]string{
		"too many":    slices.Repeat([]string{"/ip4/127.0.0.1"}, backend.MaxAddrs+1),
		"too long":    {string(make([]byte, backend.MaxAddrLength+1))},
		"empty":       {""},
		"not a text":  {"/ip4/\x1b[31m"},
		"too much":    slices.Repeat([]string{"/dns4/" + string(slices.Repeat([]byte("a"), 200))}, 6),
		"non-ASCII":   {"/dns4/bücher"},
		"with spaces": {"/ip4/127.0.0.1 "},
	} {
		if err := a.Announce(t.Context(), addrs); !errors.Is(err, backend.ErrInvalidPeer) {
			t.Errorf("%s: error %v, want ErrInvalidPeer", name, err)
		}
	}
}

func testDuplicateKey(t *testing.T, f *fixture) {
	a := f.connect(t, 1)
	a.await("anything", anything)
	if b, err := f.attach(t.Context(), Key(1)); !errors.Is(err, backend.ErrDuplicateKey) {
		if err == nil {
			_ = b.Close()
		}
		t.Fatalf("error %v, want ErrDuplicateKey", err)
	}
	a.submit(coordinator.Join{}) // the first backend is still attached
}

// oneOfTwoCloses lets two clients join and closes the backend of the second. It returns the first
// client.
func (f *fixture) oneOfTwoCloses(t *testing.T) *client {
	t.Helper()
	a, b := f.connect(t, 1), f.connect(t, 2)
	a.submit(coordinator.Join{})
	b.submit(coordinator.Join{})
	a.await("both", pending(a.id, b.id))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return a
}

func testWithdraw(t *testing.T, f *fixture) {
	a := f.oneOfTwoCloses(t)
	a.await("only one", pending(a.id))
}

func testComeBack(t *testing.T, f *fixture) {
	a := f.oneOfTwoCloses(t)
	a.await("only one", pending(a.id))
	b := f.connect(t, 2)
	b.submit(coordinator.Join{})
	a.await("both again", pending(a.id, b.id))
}

// testTwoBackends checks hosts that cannot distinguish two backends of one key.
func testTwoBackends(t *testing.T, f *fixture) {
	a, again := f.connect(t, 1), f.connect(t, 1)
	a.submit(coordinator.Join{})
	again.await("the join of the other", pending(a.id))
	again.submit(coordinator.Withdraw{Client: a.id})
	a.await("nobody", pending())
	a.submit(coordinator.Join{}) // the nonces of both backends increase, whichever submits first
	again.await("the second join", pending(a.id))
}

// testStays checks hosts that do not notice when a client disconnects.
func testStays(t *testing.T, f *fixture) {
	a := f.oneOfTwoCloses(t)
	b := f.connect(t, 2)
	b.await("both, as before", pending(a.id, b.id))
	if err := b.Submit(t.Context(), coordinator.Join{}); !errors.Is(err, coordinator.ErrDuplicate) {
		t.Fatalf("error %v, want ErrDuplicate", err)
	}
	b.submit(coordinator.Withdraw{Client: b.id})
	a.await("only one", pending(a.id))
	b.submit(coordinator.Join{})
	a.await("both again", pending(a.id, b.id))
}

func testSubmitContext(t *testing.T, f *fixture) {
	a := f.connect(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// The answer may arrive before the backend checks the context.
	if err := a.Submit(ctx, coordinator.Join{}); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want Canceled", err)
	}
}

func testClose(t *testing.T, f *fixture) {
	a := f.connect(t, 1)
	for range 2 {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range a.Updates() {
		continue // earlier updates; the loop ends when the channel is closed
	}
	if err := a.Err(); err != nil {
		t.Fatalf("Err %v after Close", err)
	}
	if err := a.Submit(t.Context(), coordinator.Join{}); !errors.Is(err, backend.ErrClosed) {
		t.Fatalf("Submit: %v, want ErrClosed", err)
	}
	if err := a.Announce(t.Context(), nil); !errors.Is(err, backend.ErrClosed) {
		t.Fatalf("Announce: %v, want ErrClosed", err)
	}
}
