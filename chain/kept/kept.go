// Package kept persists a chain of package localnet in a file, so that it can resume. The file is a
// journal of the chain's configuration, slots and transactions. Reading it runs the transactions
// again.
package kept

import (
	"errors"
	"fmt"
	"os"

	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/record/journal"
)

// File is a chain's file, open for writing. Only one process can hold it at a time.
type File struct {
	Ledger *localnet.Ledger
	Again  bool // the chain already existed
	log    *journal.Journal
}

// Open opens a chain's file to resume the chain, or starts a new chain there.
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

// Close saves all pending changes and closes the file.
func (f *File) Close() error { return errors.Join(f.Ledger.Sync(), f.log.Close()) }

// errNoChain means that a file does not contain a chain.
var errNoChain = errors.New("the file contains no chain")

// Read returns the chain in a file. Later changes to the chain are not saved.
func Read(path string) (*localnet.Ledger, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("chain: %w", err)
	}
	defer func() { _ = file.Close() }() // opened for reading only
	var replay localnet.Replay
	if _, err := journal.Read(file, replay.Entry); err != nil {
		return nil, fmt.Errorf("chain in %s: %w", path, err)
	}
	if replay.Ledger() == nil {
		return nil, fmt.Errorf("%w %s", errNoChain, path)
	}
	return replay.Ledger(), nil
}
