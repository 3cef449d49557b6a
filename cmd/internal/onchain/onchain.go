// Package onchain implements the flags of both programs that select a run on a chain: its nodes,
// its program and its account.
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

// Flags select a program on a chain.
type Flags struct {
	RPC       []string `name:"rpc" env:"RPC" sep:"," placeholder:"URL,…" help:"Solana nodes, up to 3 from different providers; their answers are compared."`
	WsRPC     []string `name:"ws-rpc" env:"WS_RPC" sep:"," placeholder:"URL,…" help:"WebSockets of these nodes, in the same order. Default: the same addresses with ws instead of http."`
	moreNodes `embed:""`
	ProgramID string `name:"program-id" env:"PSYCHE_PROGRAM_ID" placeholder:"KEY" help:"Program on the chain that hosts the run. Default: the program that psyche chain start installs."`
	MaxPrice  uint64 `name:"max-price" default:"50000" placeholder:"N" help:"Maximum priority fee per compute unit, in millionths of a lamport (${default})."`
}

// moreNodes are additional nodes, with the flag names of the original Psyche.
type moreNodes struct {
	RPC2   string `name:"rpc-2" env:"RPC_2" hidden:"" placeholder:"URL" help:"Additional node."`
	WsRPC2 string `name:"ws-rpc-2" env:"WS_RPC_2" hidden:"" placeholder:"URL" help:"WebSocket of the additional node."`
	RPC3   string `name:"rpc-3" env:"RPC_3" hidden:"" placeholder:"URL" help:"Additional node."`
	WsRPC3 string `name:"ws-rpc-3" env:"WS_RPC_3" hidden:"" placeholder:"URL" help:"WebSocket of the additional node."`
}

// RunFlags select a run on a chain, together with the run's id, which is a separate flag.
type RunFlags struct {
	Flags     `embed:""`
	Authority string `name:"authority" env:"PSYCHE_AUTHORITY" placeholder:"KEY" help:"Main authority of the run on the chain, in base58; needed if several runs have the same id."`
}

// DefaultProgram returns the program's address on a chain that `psyche chain start` runs. The private
// key of this address is unknown.
func DefaultProgram() transaction.PublicKey {
	return transaction.PublicKey(sha256.Sum256([]byte("psyche/program/v1")))
}

// DefaultMaxPrice is the default of --max-price.
const DefaultMaxPrice = 50000

// Given reports whether the flags select a chain.
func (f *Flags) Given() bool { return len(f.RPC) > 0 }

// ErrFlags means that the flags are invalid.
var ErrFlags = errors.New("flags of the chain")

// Options returns the options for package chain/solana, except the run, which Find adds.
func (f *Flags) Options(key identity.Key, logger *slog.Logger) (solana.Options, error) {
	o := solana.Options{Key: key, MaxPrice: f.MaxPrice, Logger: logger}
	var err error
	if o.Endpoints, err = f.endpoints(); err != nil {
		return o, err
	}
	o.Pace = paceFor(o.Endpoints)
	o.Program, err = f.Program()
	return o, err
}

// endpoints parses the addresses of all nodes.
func (f *Flags) endpoints() (all []rpc.Address, err error) {
	type node struct{ flag, http, ws string }
	var nodes []node
	for i, address := range f.RPC {
		one := node{flag: "--rpc, --ws-rpc", http: address}
		if i < len(f.WsRPC) {
			one.ws = f.WsRPC[i]
		}
		nodes = append(nodes, one)
	}
	for _, one := range []node{{"--rpc-2, --ws-rpc-2 (RPC_2, WS_RPC_2)", f.RPC2, f.WsRPC2}, {"--rpc-3, --ws-rpc-3 (RPC_3, WS_RPC_3)", f.RPC3, f.WsRPC3}} {
		switch {
		case one.http != "":
			nodes = append(nodes, one)
		case one.ws != "":
			return nil, fmt.Errorf("%w: %s: a WebSocket is given without a node", ErrFlags, one.flag)
		}
	}
	switch {
	case len(f.RPC) == 0:
		return nil, fmt.Errorf("%w: --rpc is empty, want at least one node", ErrFlags)
	case len(nodes) > solana.MaxEndpoints:
		return nil, fmt.Errorf("%w: --rpc, --rpc-2 and --rpc-3 (RPC, RPC_2, RPC_3) name %d nodes, want at most %d", ErrFlags, len(nodes), solana.MaxEndpoints)
	case len(f.WsRPC) != 0 && len(f.WsRPC) != len(f.RPC):
		return nil, fmt.Errorf("%w: --rpc names %d nodes, but --ws-rpc names %d: want the same number, or none", ErrFlags, len(f.RPC), len(f.WsRPC))
	}
	for _, one := range nodes {
		text := one.http
		if one.ws != "" {
			text += "," + one.ws
		}
		address, err := rpc.ParseEndpoint(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrFlags, one.flag, err)
		}
		all = append(all, address)
	}
	return all, nil
}

// paceFor returns the polling intervals. Nodes on this machine have no rate limit.
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

// Find adds the run with this id to the options.
func (f *RunFlags) Find(ctx context.Context, o *solana.Options, runID string) error {
	var authority transaction.PublicKey
	if f.Authority != "" {
		var err error
		if authority, err = transaction.ParsePublicKey(f.Authority); err != nil {
			return fmt.Errorf("%w: --authority: %w", ErrFlags, err)
		}
	}
	if len(runID) > layout.MaxRunIDLength {
		return fmt.Errorf("%w: --run-id has %d bytes, the limit on a chain is %d", ErrFlags, len(runID), layout.MaxRunIDLength)
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

// IsConnection reports whether a chain is unreachable, or is the wrong chain.
func IsConnection(err error) bool {
	return errors.Is(err, solana.ErrUnreachable) || errors.Is(err, rpc.ErrUnreachable) || errors.Is(err, rpc.ErrBusy) ||
		errors.Is(err, admin.ErrCluster)
}

// IsRefusal reports whether a reachable chain refused the operation.
func IsRefusal(err error) bool {
	for _, refused := range []error{
		admin.ErrNoFunds, admin.ErrNoRun, admin.ErrNotConfigured, admin.ErrSeveralRuns, admin.ErrNoProgram, admin.ErrForeign, admin.ErrTaken, admin.ErrOpen, admin.ErrNotMain, admin.ErrNoGrant, solana.ErrNoFunds,
	} {
		if errors.Is(err, refused) {
			return true
		}
	}
	return false
}
