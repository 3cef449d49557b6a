package solana

import (
	"cmp"
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

// MaxEndpoints limits the endpoints of a client.
const MaxEndpoints = 3

// DefaultMaxElapsed is the default time limit of Dial.
const DefaultMaxElapsed = 30 * time.Second

// Errors of a Client, in addition to the errors of package backend.
var (
	// ErrUnreachable means that the client could not get a state of the run.
	ErrUnreachable = errors.New("the run cannot be read from the chain")
	// ErrNoFunds means that the key cannot pay for a transaction.
	ErrNoFunds = errors.New("the key's account on the chain has too few lamports to pay for a transaction")
)

// Options configure a Client.
type Options struct {
	Endpoints []rpc.Address         // 1 to MaxEndpoints nodes, preferably of different providers
	Program   transaction.PublicKey // program that hosts the run
	Run       transaction.PublicKey // account of the run
	RunID     string                // expected run id; empty: any
	Key       identity.Key          // key of the participant, which also pays
	Addrs     []string              // peer-to-peer addresses of the participant, as in Announce

	// Authorizer is the grantee of the grant that lists the participant as a delegate. If it is zero,
	// the client searches all grants of the join authority.
	Authorizer transaction.PublicKey

	// Observe is set by clients that watch or administer a run and do not train. Such a client does
	// not pay for ticks.
	Observe bool
	// MaxPrice limits the priority fee per compute unit, in millionths of a lamport. Zero means
	// defaultMaxPrice.
	MaxPrice uint64
	// MaxElapsed limits the time of Dial. Zero means DefaultMaxElapsed.
	MaxElapsed time.Duration
	// Pace configures intervals. Zero fields are set from defaultPace.
	Pace Pace
	// Transport carries the requests. If nil, the transport of package rpc is used.
	Transport http.RoundTripper
	// Logger receives log messages. If nil, nothing is logged.
	Logger *slog.Logger
}

// Pace configures how often things happen.
type Pace struct {
	Poll   time.Duration // between reads of the account's head
	Fetch  time.Duration // minimum between reads of the whole account
	Prove  time.Duration // duration of a disagreement between endpoints before a state is replayed
	Grace  time.Duration // until an endpoint that disagrees with the majority is at fault
	Peers  time.Duration // between reads of other participants' announcements
	Resend time.Duration // between sendings of a transaction that no endpoint has seen land: one slot
	Repeat time.Duration // between sendings of a transaction that an endpoint has seen land
	Status time.Duration // between requests of a transaction's status
	Turn   time.Duration // duration of each rank's turn to send a tick
	Late   time.Duration // delay before clients that have no turn may send a tick
}

// defaultPace returns intervals that public endpoints accept.
func defaultPace() Pace {
	return Pace{
		Poll: 5 * time.Second, Fetch: time.Second, Prove: 4 * time.Second, Grace: 15 * time.Second, Peers: time.Minute,
		Resend: normalSlot, Repeat: 2 * time.Second, Status: 600 * time.Millisecond, Turn: 2 * time.Second, Late: 30 * time.Second,
	}
}

// withDefaults replaces zero fields with defaults.
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

// check sets defaults and validates the options.
func (o *Options) check() error {
	o.MaxPrice = cmp.Or(o.MaxPrice, defaultMaxPrice)
	o.MaxElapsed = cmp.Or(o.MaxElapsed, DefaultMaxElapsed)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Pace = o.Pace.withDefaults()
	if len(o.Endpoints) == 0 || len(o.Endpoints) > MaxEndpoints {
		return fmt.Errorf("endpoints of the chain: %d, want 1 to %d", len(o.Endpoints), MaxEndpoints)
	}
	if o.Program == (transaction.PublicKey{}) || o.Run == (transaction.PublicKey{}) {
		return errors.New("a run on a chain: missing the address of the program or of the run")
	}
	if len(o.RunID) > coordinator.MaxRunIDLength {
		return fmt.Errorf("run id %q: want at most %d bytes", o.RunID, coordinator.MaxRunIDLength)
	}
	return backend.CheckAddrs(o.Addrs)
}

// Costs are the transactions and costs of a client since Dial.
type Costs struct {
	Sent      int    // signed transactions
	Landed    int    // transactions on the chain, which cost a fee
	Lamports  uint64 // fees paid
	Ticks     int    // landed transactions that contain only ticks
	OutOfTurn int    // tick transactions in another member's turn
	Rent      uint64 // lamports in the account of the client's addresses
}
