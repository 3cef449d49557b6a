package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/journal"
)

// Bounds of what is asked of a node at once, and of one Fetch.
const (
	page     = 1000
	maxPages = 10_000
)

// Archive is a file that grows with a run. It belongs to one goroutine.
type Archive struct {
	file     *journal.Journal
	replayer replayer
}

// Open opens the archive at path, or begins one. What is there is verified.
func Open(path string, header Header) (*Archive, error) {
	a := &Archive{}
	file, _, err := journal.Open(path, a.replayer.take)
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
			err = a.replayer.take(header.AppendTo(nil))
		}
	case a.replayer.header != header:
		err = fmt.Errorf("%w: %s is of run %s of program %s on chain %s", ErrArchive, path, a.replayer.header.Run, a.replayer.header.Program, a.replayer.header.Genesis)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return a, nil
}

// Close closes the file.
func (a *Archive) Close() error { return a.file.Close() }

// Summary says what the archive has.
func (a *Archive) Summary() Summary { return a.replayer.summary() }

// State returns the state after the newest event; nobody modifies it.
func (a *Archive) State() *coordinator.State { return &a.replayer.run.State }

// Fetch adds what a node has of the run that the archive has not, and returns how many
// transactions that were. What it added stays added when it fails.
func (a *Archive) Fetch(ctx context.Context, e *rpc.Endpoint, c rpc.Commitment) (added int, err error) {
	names, err := a.missing(ctx, e, c)
	if err != nil {
		return 0, err
	}
	for _, named := range names {
		if named.Err != nil {
			continue
		}
		landed, err := e.Transaction(ctx, named.Signature, c)
		if err == nil && landed == nil {
			err = fmt.Errorf("%s: transaction %s is gone: name a node that keeps the whole history", e.Name(), named.Signature)
		}
		if err != nil {
			return added, err
		}
		done, err := a.add(landed)
		if err != nil {
			return added, fmt.Errorf("%s: %w", e.Name(), err)
		}
		if done {
			added++
		}
	}
	return added, nil
}

// missing returns the transactions that are newer than the newest of the archive, oldest first.
func (a *Archive) missing(ctx context.Context, e *rpc.Endpoint, c rpc.Commitment) ([]rpc.Named, error) {
	var all []rpc.Named
	var before transaction.Signature
	for range maxPages {
		some, err := e.History(ctx, a.replayer.header.Run, before, a.replayer.newest, page, c)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if len(some) < page {
			slices.Reverse(all)
			return all, nil
		}
		before = some[len(some)-1].Signature
	}
	return nil, fmt.Errorf("%s: the run has more than %d transactions that the archive has not", e.Name(), maxPages*page)
}

// add follows a transaction and writes it down, and reports whether it concerns the run.
func (a *Archive) add(landed *rpc.Landed) (bool, error) {
	m := &landed.Transaction.Message
	if !a.touches(m) {
		return false, nil // such as an announcement
	}
	record := Record{Slot: landed.Slot, Transaction: landed.Transaction}
	logged, complete := rpc.ProgramData(landed.Logs, a.replayer.header.Program)
	if !complete || len(logged) > maxEvents {
		return false, fmt.Errorf("%w: the logs of transaction %s are cut off", ErrArchive, landed.Transaction.Name())
	}
	for _, entry := range logged {
		e, err := event.Decode(entry)
		if err != nil {
			return false, fmt.Errorf("%w: %w", ErrArchive, err)
		}
		record.Events = append(record.Events, e)
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

// touches reports whether a message has an instruction that concerns the run.
func (a *Archive) touches(m *transaction.Message) bool {
	for n := range m.Instructions {
		if in := m.Instruction(n); a.replayer.concerns(&in) {
			return true
		}
	}
	return false
}
