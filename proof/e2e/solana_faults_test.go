package e2e

import (
	"context"
	"crypto/sha256"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/record/event"
)

// faultyChain is a chain of this machine with three nodes, in which tests inject faults.
type faultyChain struct {
	ledger *localnet.Ledger
	server *localnet.Server
	nodes  []*localnet.Endpoint
	flags  []string // flags that name the nodes and the program
}

// startChain advances a chain's time until the test ends.
func startChain(t *testing.T) *faultyChain {
	t.Helper()
	c := &faultyChain{ledger: localnet.NewLedger(localnet.Config{Start: time.Now()})}
	at := transaction.PublicKey(identity.FromSeed(sha256.Sum256([]byte("program"))).ID())
	if err := c.ledger.SetProgram(at, program.ELF); err != nil {
		t.Fatal(err)
	}
	c.ledger.Advance(time.Now()) // commands may arrive before the end of the first slot, and read the confirmed state
	c.server = localnet.NewServer(c.ledger, localnet.Options{Slot: 100 * time.Millisecond})
	var addresses []string
	for range 3 {
		node := c.server.Endpoint()
		listening := httptest.NewServer(node)
		t.Cleanup(listening.Close)
		c.nodes, addresses = append(c.nodes, node), append(addresses, listening.URL)
	}
	c.flags = []string{"--rpc", strings.Join(addresses, ","), "--program-id", at.String()}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; c.server.Close() })
	return c
}

// faultAll sets the faults of all nodes.
func (c *faultyChain) faultAll(f localnet.Faults) {
	for _, node := range c.nodes {
		node.SetFaults(f)
	}
}

// fund gives a key lamports, which are available at once.
func (c *faultyChain) fund(t *testing.T, key transaction.PublicKey) {
	t.Helper()
	if _, err := c.ledger.Airdrop(key, 10_000_000_000); err != nil {
		t.Fatal(err)
	}
	c.ledger.Advance(time.Now())
}

// psyche runs a command on the chain.
func (c *faultyChain) psyche(t *testing.T, args ...string) {
	t.Helper()
	must(t, serverBinary, append(args, c.flags...)...)
}

// TestSolanaFaults trains with real processes while a node of the chain stops, slots are reverted,
// all nodes are unreachable, and every fifth transaction is lost.
func TestSolanaFaults(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{clients: 3, minClients: 2, roundsPerEpoch: 4, steps: 16})
	c := startChain(t)
	main := n.newClient("main")
	for _, name := range []string{"main", "client-1", "client-2", "client-3"} {
		c.fund(t, transaction.PublicKey(identity.FromSeed(sha256.Sum256([]byte(name))).ID()))
	}
	c.psyche(t, "run", "create", "--state", n.state, "--keypair", main.key, "--yes")
	c.psyche(t, "run", "set-paused", "resume", "--run-id", "e2e", "--commitment", "confirmed", "--keypair", main.key)
	clients := n.startClients(3, c.flags...)

	first := clients[0]
	first.waitPhase("RoundTrain", 2)
	c.nodes[0].SetFaults(localnet.Faults{Dead: true})
	for step := uint32(4); step <= 6; step++ {
		first.waitPhase("RoundWitness", step)
		if err := c.server.Rollback(3, false); err != nil {
			t.Fatal(err)
		}
	}
	first.waitPhase("RoundTrain", 8)
	c.faultAll(localnet.Faults{Dead: true})
	time.Sleep(5 * time.Second) // for processes, which run on the wall clock
	c.faultAll(localnet.Faults{Lost: 0.2})
	finish(t, clients...)
	archive := filepath.Join(n.dir, "run.archive")
	c.faultAll(localnet.Faults{})
	c.psyche(t, "run", "archive", "--run-id", "e2e", "--output", archive, "--once", "--commitment", "confirmed")
	must(t, serverBinary, "run", "replay", archive)
	checkTurns(t, clients)
}

// checkTurns checks that ticks of clients that are not in turn cost less than 5 % of all fees.
func checkTurns(t *testing.T, clients []*client) {
	t.Helper()
	var all event.Paid
	for _, c := range clients {
		var last event.Paid
		for _, e := range c.events() {
			if paid, ok := e.Body.(event.Paid); ok {
				last = paid
			}
		}
		t.Logf("%s: %+v", c.name, last)
		all.Transactions += last.Transactions
		all.Lamports += last.Lamports
		all.Ticks += last.Ticks
		all.OutOfTurn += last.OutOfTurn
	}
	if all.Ticks == 0 || 20*all.OutOfTurn >= all.Transactions {
		t.Errorf("%d of %d transactions were ticks out of turn, %d ticks in all", all.OutOfTurn, all.Transactions, all.Ticks)
	}
}
