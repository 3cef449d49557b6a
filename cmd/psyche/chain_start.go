package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/chain/kept"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/sbpf"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
)

// chainStart runs a chain for development.
type chainStart struct {
	Listen  string   `default:"127.0.0.1:8899" placeholder:"HOST:PORT" help:"Address for JSON-RPC and WebSockets (${default}). The next port also accepts both, because tools for Solana expect WebSockets there."`
	SlotMs  int      `name:"slot-ms" default:"400" help:"Duration of a slot, in milliseconds (${default})."`
	Ledger  string   `type:"path" placeholder:"FILE" help:"File for the chain. An existing chain is continued."`
	Program []string `sep:"none" placeholder:"ID=FILE" help:"Program to install at the address ID when the chain starts. May be repeated."`
}

// Help returns the text below the command's summary in --help.
func (chainStart) Help() string {
	return `Runs a local chain of one node (package chain/localnet) with Solana's transactions, fees, limits and
programs. Its faucet gives lamports to every caller of requestAirdrop. The chain is in memory and is
lost when the command exits, unless --ledger names a file. The file contains every confirmed slot,
even if the command is killed; the chain's clock stops until the next start. The program that hosts
runs is installed at the address that commands without --program-id use.`
}

// maxSlot limits --slot-ms.
const maxSlot = time.Minute

// Run serves until a signal arrives.
func (c chainStart) Run(ctx context.Context, to console) (err error) {
	slot := time.Duration(c.SlotMs) * time.Millisecond
	if c.SlotMs < 1 || slot > maxSlot {
		return usagef("--slot-ms is %d: want 1 to %d", c.SlotMs, maxSlot.Milliseconds())
	}
	now := time.Now()
	ledger, where, err := c.open(localnet.Config{Start: now, Seed: uint64(now.UnixNano())})
	if err != nil {
		return err
	}
	signals.Hold(ctx) // the rest of the ledger is saved; a large ledger may take long to open
	defer func() { err = errors.Join(err, where.Close()) }()
	first, second, err := listenTwice(c.Listen)
	if err != nil {
		return err
	}
	server := localnet.NewServer(ledger, localnet.Options{Slot: slot})
	_, _ = fmt.Fprintf(to.out, "JSON-RPC  http://%s\nWebSocket ws://%s\n%s Its genesis hash is %s. Ctrl-C stops it.\n", first.Addr(), second.Addr(), where, ledger.Genesis())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	var stopped error
	running.Go(func() {
		stopped = server.Run(ctx)
		cancel()
	})
	err = server.Endpoint().Serve(ctx, first, second)
	cancel()
	running.Wait()
	return errors.Join(stopped, err)
}

// open starts the chain with its initial programs, or resumes a saved chain.
func (c chainStart) open(begin localnet.Config) (*localnet.Ledger, *chainPlace, error) {
	place := &chainPlace{path: c.Ledger}
	ledger := localnet.NewLedger(begin)
	if c.Ledger != "" {
		var err error
		if place.file, err = kept.Open(c.Ledger, begin); err != nil {
			return nil, nil, err
		}
		if ledger = place.file.Ledger; place.file.Again {
			place.slot = ledger.At(localnet.Confirmed, 0).Slot
			if len(c.Program) > 0 {
				return nil, nil, errors.Join(usagef("--program: the chain in %s already exists, with its programs: omit the flag", c.Ledger), place.Close())
			}
			return ledger, place, nil
		}
	}
	if err := ledger.SetProgram(onchain.DefaultProgram(), program.ELF); err != nil {
		return nil, nil, errors.Join(err, place.Close())
	}
	for _, given := range c.Program {
		if err := setProgram(ledger, given); err != nil {
			return nil, nil, errors.Join(err, place.Close())
		}
	}
	return ledger, place, nil
}

// chainPlace is where a chain is stored: in a file, or in memory only.
type chainPlace struct {
	path string
	file *kept.File // nil: in memory only
	slot uint64     // last slot before it was resumed; 0: a new chain
}

// String returns the location as part of a sentence.
func (p *chainPlace) String() string {
	switch {
	case p.file == nil:
		return "The chain is in memory."
	case p.slot > 0:
		return fmt.Sprintf("The chain of %s continues after slot %d.", p.path, p.slot)
	}
	return fmt.Sprintf("The chain is kept in %s.", p.path)
}

// Close saves the remaining changes.
func (p *chainPlace) Close() error {
	if p.file == nil {
		return nil
	}
	return p.file.Close()
}

// setProgram adds a program to the chain, given as ID=FILE.
func setProgram(ledger *localnet.Ledger, given string) error {
	id, path, found := strings.Cut(given, "=")
	key, err := transaction.ParsePublicKey(id)
	if !found || err != nil {
		return usagef("--program %q: want an id in base58, = and the program's file", given)
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--program %s: %w", id, err)
	}
	defer func() { _ = file.Close() }()
	image, err := io.ReadAll(io.LimitReader(file, sbpf.MaxSize+1)) // Load rejects larger files
	if err != nil {
		return fmt.Errorf("--program %s: %s: %w", id, path, err)
	}
	if err := ledger.SetProgram(key, image); err != nil {
		return fmt.Errorf("--program %s: %s: %w", id, path, err)
	}
	return nil
}

// listenTwice listens at an address and at the next port, where tools expect WebSockets.
func listenTwice(address string) (first, second net.Listener, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, usagef("--listen %q: want host:port: %w", address, err)
	}
	if first, err = net.Listen("tcp", address); err != nil {
		return nil, nil, fmt.Errorf("--listen %s: %w", address, err)
	}
	next := "0"
	if port != "0" {
		next = strconv.Itoa(first.Addr().(*net.TCPAddr).Port + 1)
	}
	if second, err = net.Listen("tcp", net.JoinHostPort(host, next)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--listen %s: cannot listen on the next port, which WebSockets need: %w", address, err), first.Close())
	}
	return first, second, nil
}
