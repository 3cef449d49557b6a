// Package onchain is what both programs need to find a run on a chain: the flags that name its
// nodes, its program and its account, and what is made of them.
package onchain

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Flags name a program on a chain.
type Flags struct {
	RPC       []string `name:"rpc" env:"RPC" sep:"," placeholder:"URL,…" help:"Nodes of a Solana chain, up to 3 of different providers, whose answers are compared."`
	WsRPC     []string `name:"ws-rpc" env:"WS_RPC" sep:"," placeholder:"URL,…" help:"Their WebSockets, in the same order. Default: the same addresses with ws for http."`
	ProgramID string   `name:"program-id" env:"PSYCHE_PROGRAM_ID" placeholder:"KEY" help:"Program on the chain that hosts the run. Default: the one that psyche chain start puts there."`
	MaxPrice  uint64   `name:"max-price" default:"50000" placeholder:"N" help:"Most that is offered for a compute unit to be faster than others, in millionths of a lamport (${default})."`
}

// RunFlags name a run on a chain, beside its id.
type RunFlags struct {
	Flags     `embed:""`
	Authority string `name:"authority" env:"PSYCHE_AUTHORITY" placeholder:"KEY" help:"Main authority of the run on the chain, in base58, where several runs have its id."`
}

// DefaultProgram is where psyche chain start puts the program. Nobody has the key of that address.
func DefaultProgram() transaction.PublicKey {
	return transaction.PublicKey(sha256.Sum256([]byte("psyche/program/v1")))
}

// DefaultMaxPrice is what --max-price is if nobody says it.
const DefaultMaxPrice = 50000

// Given reports whether the flags name a chain.
func (f *Flags) Given() bool { return len(f.RPC) > 0 }

// ErrFlags says that the flags cannot be right.
var ErrFlags = errors.New("flags of the chain")

// Options returns what package chain/solana needs, without the run.
func (f *Flags) Options(key identity.Key, logger *slog.Logger) (solana.Options, error) {
	o := solana.Options{Key: key, MaxPrice: f.MaxPrice, Logger: logger}
	switch {
	case len(f.RPC) == 0:
		return o, fmt.Errorf("%w: --rpc names no node", ErrFlags)
	case len(f.RPC) > solana.MaxEndpoints:
		return o, fmt.Errorf("%w: --rpc names %d nodes, at most %d are compared", ErrFlags, len(f.RPC), solana.MaxEndpoints)
	case len(f.WsRPC) != 0 && len(f.WsRPC) != len(f.RPC):
		return o, fmt.Errorf("%w: --rpc names %d nodes, --ws-rpc %d: want as many, or none", ErrFlags, len(f.RPC), len(f.WsRPC))
	}
	for i, text := range f.RPC {
		if len(f.WsRPC) > 0 {
			text += "," + f.WsRPC[i]
		}
		address, err := rpc.ParseEndpoint(text)
		if err != nil {
			return o, fmt.Errorf("%w: --rpc, --ws-rpc: %w", ErrFlags, err)
		}
		o.Endpoints = append(o.Endpoints, address)
	}
	o.Pace = paceFor(o.Endpoints)
	var err error
	o.Program, err = f.Program()
	return o, err
}

// paceFor returns how often to ask. Nodes on this machine have no provider who would mind.
func paceFor(endpoints []rpc.Address) solana.Pace {
	for _, e := range endpoints {
		at, err := url.Parse(e.HTTP)
		if err != nil || at.Hostname() != "localhost" && !net.ParseIP(at.Hostname()).IsLoopback() {
			return solana.Pace{}
		}
	}
	return solana.Pace{Poll: time.Second, Fetch: 150 * time.Millisecond, Peers: 5 * time.Second, Repeat: time.Second, Status: 150 * time.Millisecond, Turn: 2 * time.Second}
}

// Program returns the program that hosts the run.
func (f *Flags) Program() (transaction.PublicKey, error) {
	if f.ProgramID == "" {
		return DefaultProgram(), nil
	}
	program, err := transaction.ParsePublicKey(f.ProgramID)
	if err != nil {
		err = fmt.Errorf("%w: --program-id: %w", ErrFlags, err)
	}
	return program, err
}

// Find adds the run of an id to the options.
func (f *RunFlags) Find(ctx context.Context, o *solana.Options, runID string) error {
	var authority transaction.PublicKey
	if f.Authority != "" {
		var err error
		if authority, err = transaction.ParsePublicKey(f.Authority); err != nil {
			return fmt.Errorf("%w: --authority: %w", ErrFlags, err)
		}
	}
	if len(runID) > layout.MaxRunIDLength {
		return fmt.Errorf("%w: --run-id has %d bytes, at most %d fit on a chain", ErrFlags, len(runID), layout.MaxRunIDLength)
	}
	chain, err := admin.Open(*o)
	if err != nil {
		return err
	}
	defer chain.Close()
	o.Run, err = chain.Find(ctx, o.Program, runID, authority)
	o.RunID = runID
	return err
}

// IsConnection reports whether a chain is out of reach, or is another one than it should be.
func IsConnection(err error) bool {
	return errors.Is(err, solana.ErrUnreachable) || errors.Is(err, rpc.ErrUnreachable) || errors.Is(err, rpc.ErrBusy) ||
		errors.Is(err, admin.ErrCluster)
}

// IsRefusal reports whether a chain is reached and says no.
func IsRefusal(err error) bool {
	for _, refused := range []error{
		admin.ErrNoFunds, admin.ErrNoRun, admin.ErrSeveralRuns, admin.ErrNoProgram, admin.ErrForeign, admin.ErrTaken, admin.ErrOpen, admin.ErrNotMain, solana.ErrNoFunds,
	} {
		if errors.Is(err, refused) {
			return true
		}
	}
	return false
}
