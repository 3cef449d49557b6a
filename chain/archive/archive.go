package archive

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/journal"
)

// Archive is a file that grows with a run. It belongs to one goroutine.
type Archive struct {
	file     *journal.Journal
	replayer Replayer
}

// Open opens the archive at path, or begins one. What is there is verified.
func Open(path string, header Header) (*Archive, error) {
	a := &Archive{}
	file, _, err := journal.Open(path, a.replayer.Take)
	if err != nil {
		return nil, err
	}
	a.file = file
	switch {
	case !a.replayer.begun:
		if err = file.Append(header.AppendTo(nil)); err == nil {
			err = file.Commit()
		}
		if err == nil {
			err = a.replayer.Take(header.AppendTo(nil))
		}
	case a.replayer.header != header:
		err = fmt.Errorf("%w: %s belongs to run %s of program %s on chain %s", ErrArchive, path, a.replayer.header.Run, a.replayer.header.Program, a.replayer.header.Genesis)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return a, nil
}

// Close closes the file.
func (a *Archive) Close() error { return a.file.Close() }

// Summary says what the archive has.
func (a *Archive) Summary() Summary { return a.replayer.Summary() }

// State returns the state after the newest event; nobody modifies it.
func (a *Archive) State() *coordinator.State { return &a.replayer.run.State }

// Newest returns the name of the newest transaction that the archive has; zero: it has none.
func (a *Archive) Newest() transaction.Signature { return a.replayer.newest }

// Add follows a transaction, as a node tells it, and writes it down. It reports whether the transaction changed the
// run; events of other runs may be among its own. A transaction that concerns the run (Concerns) and is not explained by its events is ErrArchive.
func (a *Archive) Add(record Record) (bool, error) {
	name, m := record.Transaction.Name(), &record.Transaction.Message
	if len(record.Events) > maxEvents {
		return false, fmt.Errorf("%w: transaction %s has %d events, want at most %d", ErrArchive, name, len(record.Events), maxEvents)
	}
	if len(record.Events) == 0 && a.onlyTicks(m) {
		return false, nil // nothing was due, or it armed
	}
	var err error
	if record.Events, err = a.replayer.follow(&record, true); err != nil {
		return false, err
	}
	payload, err := record.AppendTo(nil)
	if err != nil {
		return false, err
	}
	if err := a.file.Append(payload); err != nil {
		return false, err
	}
	return true, a.file.Commit()
}

// onlyTicks reports whether nothing in a message but ticks concerns the run.
func (a *Archive) onlyTicks(m *transaction.Message) bool {
	for n := range m.Instructions {
		if in := m.Instruction(n); a.replayer.concerns(&in) && in.Data[0] != transaction.RunTick {
			return false
		}
	}
	return true
}

// Concerns reports whether a message has an instruction that concerns the run.
func (a *Archive) Concerns(m *transaction.Message) bool {
	for n := range m.Instructions {
		if in := m.Instruction(n); a.replayer.concerns(&in) {
			return true
		}
	}
	return false
}
