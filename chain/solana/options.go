package solana

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
)

// MaxEndpoints bounds the endpoints that are compared.
const MaxEndpoints = 3

// defaultMaxElapsed is how long Dial tries.
const defaultMaxElapsed = 30 * time.Second

// Errors of a Client, beside those of package backend.
var (
	// ErrUnreachable says that no state of the run could be had.
	ErrUnreachable = errors.New("the run cannot be read from the chain")
	// ErrNoFunds says that the key cannot pay for a transaction.
	ErrNoFunds = errors.New("the key's account on the chain has too little to pay for a transaction")
)

// Options of a Client.
type Options struct {
	Endpoints []rpc.Address         // 1 to MaxEndpoints nodes, of different providers if there are several
	Program   transaction.PublicKey // that hosts the run
	Run       transaction.PublicKey // its account
	RunID     string                // that it has to have; empty: any
	Key       identity.Key          // of the participant; it pays
	Addrs     []string              // its peer-to-peer addresses, as Announce would set them

	// Observe is true for a client that watches and administers, and does not train: it pays for
	// no ticks.
	Observe bool
	// MaxPrice bounds what is offered for a compute unit, in millionths of a lamport. Zero:
	// defaultMaxPrice.
	MaxPrice uint64
	// MaxElapsed bounds Dial. Zero: defaultMaxElapsed.
	MaxElapsed time.Duration
	// Pace says how often things happen. Zero fields: those of defaultPace.
	Pace Pace
	// Transport carries the requests. Nil: the one of package rpc.
	Transport http.RoundTripper
	// Logger; nil: nothing is logged.
	Logger *slog.Logger
}

// Pace says how often things happen.
type Pace struct {
	Poll   time.Duration // between looks at the head of the account
	Fetch  time.Duration // between fetches of the whole account, at least
	Prove  time.Duration // that endpoints may disagree before a state is replayed
	Grace  time.Duration // until an endpoint at odds with the others is at fault
	Peers  time.Duration // between looks at what the others announced
	Resend time.Duration // between sendings of a transaction that nobody has seen land: a slot
	Repeat time.Duration // between sendings of one that somebody has seen
	Status time.Duration // between looks at what became of it
	Turn   time.Duration // that each rank has for a tick
	Late   time.Duration // that those behind the last rank with a turn wait
}

// defaultPace returns what public endpoints bear.
func defaultPace() Pace {
	return Pace{
		Poll: 5 * time.Second, Fetch: time.Second, Prove: 4 * time.Second, Grace: 15 * time.Second, Peers: time.Minute,
		Resend: normalSlot, Repeat: 2 * time.Second, Status: 600 * time.Millisecond, Turn: 2 * time.Second, Late: 30 * time.Second,
	}
}

// withDefaults fills in what is zero.
func (p Pace) withDefaults() Pace {
	defaults := defaultPace()
	for _, field := range []struct{ value, standard *time.Duration }{
		{&p.Poll, &defaults.Poll}, {&p.Fetch, &defaults.Fetch}, {&p.Prove, &defaults.Prove}, {&p.Grace, &defaults.Grace},
		{&p.Peers, &defaults.Peers}, {&p.Resend, &defaults.Resend}, {&p.Repeat, &defaults.Repeat}, {&p.Status, &defaults.Status},
		{&p.Turn, &defaults.Turn}, {&p.Late, &defaults.Late},
	} {
		if *field.value <= 0 {
			*field.value = *field.standard
		}
	}
	return p
}

// check fills in what is zero and refuses what cannot be right.
func (o *Options) check() error {
	if o.MaxPrice == 0 {
		o.MaxPrice = defaultMaxPrice
	}
	if o.MaxElapsed == 0 {
		o.MaxElapsed = defaultMaxElapsed
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Pace = o.Pace.withDefaults()
	if len(o.Endpoints) == 0 || len(o.Endpoints) > MaxEndpoints {
		return fmt.Errorf("endpoints of the chain: %d, want 1 to %d", len(o.Endpoints), MaxEndpoints)
	}
	if o.Program == (transaction.PublicKey{}) || o.Run == (transaction.PublicKey{}) {
		return errors.New("a run on a chain: the program's and the run's address are needed")
	}
	if len(o.RunID) > coordinator.MaxRunIDLength {
		return fmt.Errorf("run id %q: want at most %d bytes", o.RunID, coordinator.MaxRunIDLength)
	}
	return backend.CheckAddrs(o.Addrs)
}

// Costs is what a client has paid and done since it began.
type Costs struct {
	Sent      int    // transactions that were signed
	Landed    int    // of them: part of the chain, and paid for
	Lamports  uint64 // paid for them
	Ticks     int    // of Landed: they did nothing but tick
	OutOfTurn int    // of Ticks: it was the turn of another member that did not take it
	Rent      uint64 // lamports that lie in the account of its addresses
}
