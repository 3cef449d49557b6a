package localnet

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
)

// client uses package rpc as a client of a node.
type client struct {
	*node
	*rpc.Endpoint
}

func newClient(t *testing.T, c Config) *client {
	n := newNode(t, c)
	s := httptest.NewServer(n.endpoint)
	p, err := rpc.NewPool(rpc.Options{Endpoints: []rpc.Address{{HTTP: s.URL, WS: "ws" + strings.TrimPrefix(s.URL, "http")}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		s.Close()
	})
	return &client{n, p.Endpoints()[0]}
}

// do sends a transaction and checks that it lands.
func (c *client) do(keys []identity.Key, instructions ...transaction.Instruction) transaction.Signature {
	c.Helper()
	ctx := context.Background()
	hash, err := c.LatestBlockhash(ctx, rpc.Confirmed)
	if err != nil {
		c.Fatal(err)
	}
	c.nextSlots(1) // so that the hash is confirmed
	name, err := c.Send(ctx, signed(c.TB, hash.Hash, keys, instructions...))
	if err != nil {
		c.Fatal(err)
	}
	statuses, _, err := c.Statuses(ctx, []transaction.Signature{name}, false)
	if err != nil || statuses[0] == nil || statuses[0].Err != nil {
		c.Fatalf("got %+v %v; want nil error and statuses[0] != nil and statuses[0].Err == nil", statuses, err)
	}
	return name
}

// TestProgramOfRuns deploys the program as on any chain, creates a run's account, stages bytes and
// frees the account, all through package rpc.
func TestProgramOfRuns(t *testing.T) {
	c := newClient(t, Config{Finalized: 4})
	ctx := t.Context()
	key, buffer := keyOf("program of runs"), keyOf("buffer of runs")
	size := transaction.BufferHeader + len(program.ELF)
	c.do([]identity.Key{c.payer, buffer},
		transaction.CreateAccount(public(c.payer), public(buffer), c.config.Rent.Minimum(size), uint64(size), transaction.LoaderProgram),
		transaction.InitializeBuffer(public(buffer), public(c.payer)))
	for at := 0; at < len(program.ELF); at += transaction.MaxLoaderWrite {
		part := program.ELF[at:min(at+transaction.MaxLoaderWrite, len(program.ELF))]
		c.do([]identity.Key{c.payer}, transaction.LoaderWrite(public(buffer), public(c.payer), uint32(at), part))
	}
	deploy, err := transaction.Deploy(public(c.payer), public(key), public(buffer), public(c.payer), uint64(len(program.ELF)))
	if err != nil {
		t.Fatal(err)
	}
	rent := c.config.Rent.Minimum(transaction.ProgramSize)
	c.do([]identity.Key{c.payer, key}, transaction.CreateAccount(public(c.payer), public(key), rent, transaction.ProgramSize, transaction.LoaderProgram), deploy)

	runs := transaction.Program(public(key))
	run, err := runs.RunAddress(public(c.payer), "run-1")
	if err != nil {
		t.Fatal(err)
	}
	rent, err = c.RentExemption(ctx, layout.AccountSize)
	if err != nil {
		t.Fatal(err)
	}
	create, err := transaction.CreateAccountWithSeed(public(c.payer), public(c.payer), "run-1", rent, layout.AccountSize, public(key))
	if err != nil {
		t.Fatal(err)
	}
	c.do([]identity.Key{c.payer}, create, runs.Init(run, public(c.payer)))
	staged := bytes.Repeat([]byte("psyche"), 1400)
	for _, in := range runs.Writes(run, public(c.payer), staged, transaction.MaxRunWrite) {
		c.do([]identity.Key{c.payer}, in)
	}
	c.nextSlots(5)
	found, slot, err := c.Account(ctx, run, rpc.Query{Commitment: rpc.Finalized})
	if err != nil || found == nil || len(found.Data) != layout.AccountSize || !bytes.Contains(found.Data, staged) {
		t.Fatalf("the account in slot %d: %v", slot, err)
	}
	all, err := c.ProgramAccounts(ctx, public(key), layout.AccountSize, nil, rpc.Query{Commitment: rpc.Confirmed, Slice: &rpc.Slice{Length: 8}})
	if err != nil || len(all) != 1 {
		t.Fatalf("%d accounts: %v", len(all), err)
	}
	before := c.lamports(public(c.payer))
	c.do([]identity.Key{c.payer}, runs.Free(run, public(c.payer), public(c.payer)))
	if got := c.lamports(public(c.payer)); got != before+rent-5000 {
		t.Errorf("%d lamports of rent came back, want %d", got+5000-before, rent)
	}
}

// TestClient makes every request that package rpc supports.
func TestClient(t *testing.T) {
	c := newClient(t, Config{Finalized: 4})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	receiver := public(keyOf("receiver"))
	notices := make(chan rpc.LogsNotice, 10)
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- c.ListenLogs(ctx, receiver, rpc.Confirmed, func() { close(ready) }, func(notice rpc.LogsNotice) { notices <- notice })
	}()
	<-ready
	name := c.do([]identity.Key{c.payer}, transaction.Transfer(public(c.payer), receiver, sol))
	c.nextSlots(5)
	if n := <-notices; n.Signature != name || n.Err != nil || len(n.Logs) != 2 {
		t.Errorf("got %+v; want n.Signature == name and n.Err == nil and len(n.Logs) == 2", n)
	}
	check := func(subject string, err error, good bool) {
		t.Helper()
		if err != nil || !good {
			t.Errorf("%s: got %v; want nil error and good", subject, err)
		}
	}
	height, err := c.BlockHeight(ctx, rpc.Processed)
	check("height", err, height == 7)
	balance, err := c.Balance(ctx, receiver, rpc.Finalized)
	check("balance", err, balance == sol)
	fees, err := c.PrioritizationFees(ctx, []transaction.PublicKey{receiver})
	check("fees", err, len(fees) > 0)
	hash, err := c.GenesisHash(ctx)
	check("genesis", err, hash == c.Genesis())
	drop, err := c.Airdrop(ctx, receiver, sol)
	check("airdrop", err, c.lamports(receiver) == 2*sol)
	landed, err := c.Transaction(ctx, name, rpc.Finalized)
	check("transaction", err, landed != nil && landed.Fee == 5000 && landed.Units == 150)
	history, err := c.History(ctx, receiver, transaction.Signature{}, transaction.Signature{}, 10, rpc.Finalized)
	check("history", err, len(history) == 1 && history[0].Signature == name)
	c.nextSlots(1)
	history, err = c.History(ctx, receiver, transaction.Signature{}, name, 10, rpc.Confirmed)
	check("newer history", err, len(history) == 1 && history[0].Signature == drop)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("listening ended with %v", err)
	}
}
