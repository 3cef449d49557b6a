package archive

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/journal"
)

// Archive is a file that grows with a run. It is not safe for concurrent use.
type Archive struct {
	file     *journal.Journal
	replayer Replayer
}

// Open opens and verifies the archive at path, or creates one.
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

// Summary describes the content of the archive.
func (a *Archive) Summary() Summary { return a.replayer.Summary() }

// State returns the state after the newest event. Callers must not modify it.
func (a *Archive) State() *coordinator.State { return &a.replayer.run.State }

// Newest returns the first signature of the archive's newest transaction; zero if the archive is
// empty.
func (a *Archive) Newest() transaction.Signature { return a.replayer.newest }

// Add applies a transaction from a node and writes it to the archive. It reports whether the
// transaction changed the run. The events may include events of other runs. Add returns ErrArchive
// if the transaction concerns the run (Concerns) and its instructions do not match its events.
func (a *Archive) Add(record Record) (bool, error) {
	name, m := record.Transaction.Name(), &record.Transaction.Message
	if len(record.Events) > maxEvents {
		return false, fmt.Errorf("%w: transaction %s has %d events, want at most %d", ErrArchive, name, len(record.Events), maxEvents)
	}
	if len(record.Events) == 0 && a.onlyTicks(m) {
		return false, nil // nothing was due, or a tick began to wait for its draw
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

// onlyTicks reports whether a message has only ticks for the run.
func (a *Archive) onlyTicks(m *transaction.Message) bool {
	for n := range m.Instructions {
		if in := m.Instruction(n); a.replayer.concerns(&in) && in.Data[0] != transaction.RunTick {
			return false
		}
	}
	return true
}

// Concerns reports whether a message has an instruction for the run.
func (a *Archive) Concerns(m *transaction.Message) bool {
	for n := range m.Instructions {
		if in := m.Instruction(n); a.replayer.concerns(&in) {
			return true
		}
	}
	return false
}
