package solana

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// smallGenesis returns a genesis of a run that begins with one client.
func smallGenesis() coordinator.Genesis {
	return coordinator.Genesis{
		RunID: "small", Config: testConfig(), Model: coordinator.Model{MaxSeqLen: 16, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}},
	}
}

// small begins such a run and attaches the n-th client.
func small(t *testing.T, n byte) (*chain, *Client, transaction.PublicKey) {
	t.Helper()
	c := newChain(t, 1, 10*time.Millisecond, nil)
	run := c.create(smallGenesis())
	client, err := c.join(t.Context(), backendtest.Key(n), run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return c, client, run
}

// await waits for an update.
func await(t *testing.T, c *Client, subject string, done func(backend.Update) bool) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	for {
		select {
		case u := <-c.Updates():
			if done(u) {
				return
			}
		case <-timer.C:
			t.Fatalf("no update with %s", subject)
		}
	}
}

// TestUpdateConfig changes the rules of a paused run with a staged action.
func TestUpdateConfig(t *testing.T) {
	c, _, run := small(t, 1)
	main, err := c.join(t.Context(), mainKey(), run)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = main.Close() }()
	if err := main.Submit(t.Context(), coordinator.SetPaused{Paused: true}); err != nil {
		t.Fatal(err)
	}
	// There are no members, so the authority must send the ticks.
	if err := main.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, main, "a pause", func(u backend.Update) bool { return u.State.RunState == coordinator.Paused })
	update := coordinator.UpdateConfig{Config: testConfig(), Model: smallGenesis().Model}
	update.Config.TotalSteps = 4711
	update.Model.Definition = make([]byte, coordinator.MaxDefinitionSize)
	if err := main.Submit(t.Context(), update); err != nil {
		t.Fatal(err)
	}
	await(t, main, "the new rules", func(u backend.Update) bool {
		return u.State.Config.TotalSteps == 4711 && len(u.State.Model.Definition) == coordinator.MaxDefinitionSize
	})
	if err := main.Submit(t.Context(), coordinator.UpdateConfig{}); !errors.Is(err, coordinator.ErrInvalidConfig) {
		t.Errorf("error %v", err)
	}
}

// TestRefusalsAreFree checks that an action that the rules refuse is not sent.
func TestRefusalsAreFree(t *testing.T) {
	_, client, _ := small(t, 1)
	before := client.Costs()
	if err := client.Submit(t.Context(), coordinator.Ready{}); !errors.Is(err, coordinator.ErrWrongState) {
		t.Fatal(err)
	}
	if after := client.Costs(); after != before {
		t.Errorf("costs %+v became %+v", before, after)
	}
}

// TestExpiry drops everything until the blockhash has expired. The action must be signed again with
// the same nonce.
func TestExpiry(t *testing.T) {
	c, client, _ := small(t, 1)
	c.nodes[0].SetFaults(localnet.Faults{Lost: 1})
	done := make(chan error, 1)
	go func() { done <- client.Submit(t.Context(), coordinator.Join{}) }()
	for client.Costs().Sent == 0 {
		time.Sleep(time.Millisecond)
	}
	c.server.Skip(200)
	for client.Costs().Sent == 1 {
		time.Sleep(time.Millisecond)
	}
	c.nodes[0].SetFaults(localnet.Faults{})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if costs := client.Costs(); costs.Lamports != fee(actUnits, firstRaise) && costs.Lamports != fee(actUnits+tickUnits, firstRaise) {
		t.Errorf("costs %+v: the second transaction offers %d", costs, firstRaise)
	}
}

// TestContextEndsWhatIsLost checks that Submit ends with its context, and that the client ends with
// Close.
func TestContextEndsWhatIsLost(t *testing.T) {
	c, client, _ := small(t, 1)
	c.nodes[0].SetFaults(localnet.Faults{Lost: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Submit(ctx, coordinator.Join{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- client.Submit(context.Background(), coordinator.Join{}) }()
	time.Sleep(20 * time.Millisecond) // usually enough for Submit to begin; the test also passes if it has not
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, backend.ErrClosed) {
		t.Errorf("error %v", err)
	}
	if err := client.Announce(t.Context(), nil); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

// TestManyAddresses announces more addresses than fit into a transaction.
func TestManyAddresses(t *testing.T) {
	_, client, _ := small(t, 1)
	if err := client.Submit(t.Context(), coordinator.Join{}); err != nil {
		t.Fatal(err)
	}
	addrs := slices.Repeat([]string{"/dns4/" + strings.Repeat("a", 194)}, 5) // 1,000 bytes
	if err := client.Announce(t.Context(), addrs); err != nil {
		t.Fatal(err)
	}
	await(t, client, "the addresses that fit", func(u backend.Update) bool {
		return len(u.Peers) == 1 && slices.Equal(u.Peers[0].Addrs, addrs[:4])
	})
	if client.Costs().Rent == 0 {
		t.Error("the account has no rent")
	}
}

// TestDialRefuses checks that errors name the problem.
func TestDialRefuses(t *testing.T) {
	c, _, run := small(t, 1)
	for name, test := range map[string]struct {
		change func(o *Options)
		want   error
	}{
		"no such account":  {func(o *Options) { o.Run = transaction.PublicKey{1} }, backend.ErrWrongRun},
		"another program":  {func(o *Options) { o.Program = transaction.PublicKey{1} }, backend.ErrWrongRun},
		"no run's account": {func(o *Options) { o.Run = c.program }, backend.ErrWrongRun},
		"another run":      {func(o *Options) { o.RunID = "other" }, backend.ErrWrongRun},
		"nobody is there": {func(o *Options) {
			o.Endpoints[0].HTTP, o.MaxElapsed = "http://127.0.0.1:1", 100*time.Millisecond
		}, ErrUnreachable},
		"bad addresses": {func(o *Options) { o.Addrs = []string{""} }, backend.ErrInvalidPeer},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.options(backendtest.Key(3))
			o.Endpoints = slices.Clone(o.Endpoints)
			o.Run = run
			test.change(&o)
			if client, err := Dial(t.Context(), o); !errors.Is(err, test.want) {
				if err == nil {
					_ = client.Close()
				}
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
	for name, change := range map[string]func(o *Options){
		"no endpoint": func(o *Options) { o.Endpoints = nil }, "four endpoints": func(o *Options) { o.Endpoints = slices.Repeat(o.Endpoints, 4) },
		"no program": func(o *Options) { o.Program = transaction.PublicKey{} }, "a long id": func(o *Options) { o.RunID = strings.Repeat("x", 33) },
	} {
		o := c.options(backendtest.Key(3))
		o.Run = run
		change(&o)
		if client, err := Dial(t.Context(), o); err == nil {
			_ = client.Close()
			t.Errorf("%s is accepted", name)
		}
	}
}

// TestNoFunds checks that a client without funds gets an error, instead of sending transactions
// that never land.
func TestNoFunds(t *testing.T) {
	c, _, run := small(t, 1)
	poor := identity.FromSeed([identity.SeedSize]byte{99})
	o := c.options(poor)
	o.Run = run
	client, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if err := client.Submit(t.Context(), coordinator.Join{}); !errors.Is(err, ErrNoFunds) || !strings.Contains(err.Error(), poor.ID().String()) {
		t.Errorf("error %v", err)
	}
	if _, err := Create(t.Context(), c.options(poor), smallGenesis()); !errors.Is(err, ErrNoFunds) {
		t.Errorf("error %v", err)
	}
}

// TestCreateOnce checks that a second run with the same name is refused, and that an interrupted
// creation is completed.
func TestCreateOnce(t *testing.T) {
	c, _, run := small(t, 1)
	_, err := Create(t.Context(), c.options(mainKey()), smallGenesis())
	golden.Message(t, "a run of that id", err)
	genesis := smallGenesis()
	genesis.RunID = "broken off"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { // once its account exists
		address, err := transaction.Program(c.program).RunAddress(transaction.PublicKey(mainKey().ID()), genesis.RunID)
		for err == nil && ctx.Err() == nil && c.ledger.At(localnet.Confirmed, 0).Account(address) == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := Create(ctx, c.options(mainKey()), genesis); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	second, err := Create(t.Context(), c.options(mainKey()), genesis)
	if err != nil || second == run {
		t.Errorf("run %s, %v", second, err)
	}
	bad := smallGenesis()
	bad.Config.TotalSteps = 0
	if _, err := Create(t.Context(), c.options(mainKey()), bad); err == nil {
		t.Error("an invalid genesis is accepted")
	}
}
