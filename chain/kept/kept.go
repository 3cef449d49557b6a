// Package kept is a chain of package localnet that is kept in a file, so that it goes on where it
// ended: a journal of what the chain began with, its slots and its transactions. Reading it runs the
// transactions again.
package kept

import (
	"errors"
	"fmt"
	"os"

	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/record/journal"
)

// File is a chain's file, open for writing. One process at a time has it.
type File struct {
	Ledger *localnet.Ledger
	Again  bool // the chain was there before
	log    *journal.Journal
}

// Open opens the chain of a file to go on with it, or begins one there.
func Open(path string, begin localnet.Config) (*File, error) {
	var replay localnet.Replay
	log, _, err := journal.Open(path, replay.Entry)
	if err != nil {
		return nil, fmt.Errorf("chain in %s: %w", path, err)
	}
	f := &File{Ledger: replay.Ledger(), Again: replay.Ledger() != nil, log: log}
	if !f.Again {
		f.Ledger = localnet.NewLedger(begin)
	}
	if err := f.Ledger.Keep(log); err != nil {
		return nil, errors.Join(fmt.Errorf("chain in %s: %w", path, err), log.Close())
	}
	return f, nil
}

// Close keeps the rest of what happened and closes the file.
func (f *File) Close() error { return errors.Join(f.Ledger.Sync(), f.log.Close()) }

// errNoChain says that a file has no chain.
var errNoChain = errors.New("no chain is in the file")

// Read returns the chain of a file as it stands there; nothing that happens on it is kept.
func Read(path string) (*localnet.Ledger, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("chain: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	var replay localnet.Replay
	if _, err := journal.Read(file, replay.Entry); err != nil {
		return nil, fmt.Errorf("chain in %s: %w", path, err)
	}
	if replay.Ledger() == nil {
		return nil, fmt.Errorf("%w %s", errNoChain, path)
	}
	return replay.Ledger(), nil
}
