package fetch

import (
	"context"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Limits of one request to a node, and of one call of Into.
const (
	page     = 1000
	maxPages = 10_000
)

// Into adds a run's transactions that the archive lacks, and returns their number. If it fails, the
// transactions added so far remain.
func Into(ctx context.Context, a *archive.Archive, e *rpc.Endpoint, c rpc.Commitment) (added int, err error) {
	names, err := missing(ctx, a, e, c)
	if err != nil {
		return 0, err
	}
	for _, named := range names {
		if named.Err != nil {
			continue
		}
		landed, err := e.Transaction(ctx, named.Signature, c)
		if err == nil && landed == nil {
			err = fmt.Errorf("%s: the node no longer has transaction %s; use a node with the whole history", e.Name(), named.Signature)
		}
		if err != nil {
			return added, err
		}
		done, err := add(a, landed)
		if err != nil {
			return added, fmt.Errorf("%s: %w", e.Name(), err)
		}
		if done {
			added++
		}
	}
	return added, nil
}

// missing returns the transactions that are newer than the archive's newest, oldest first.
func missing(ctx context.Context, a *archive.Archive, e *rpc.Endpoint, c rpc.Commitment) ([]rpc.Named, error) {
	var all []rpc.Named
	var before transaction.Signature
	run, newest := a.Summary().Run, a.Newest()
	for range maxPages {
		some, err := e.History(ctx, run, before, newest, page, c)
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
	return nil, fmt.Errorf("%s: the archive lacks more than %d transactions of the run", e.Name(), maxPages*page)
}

// add adds a transaction to the archive, and reports whether it changed the run.
func add(a *archive.Archive, landed *rpc.Landed) (bool, error) {
	if !a.Concerns(&landed.Transaction.Message) {
		return false, nil // a transaction that changes no run, such as an announcement
	}
	record := archive.Record{Slot: landed.Slot, Transaction: landed.Transaction}
	logged, complete := rpc.ProgramData(landed.Logs, a.Summary().Program)
	if !complete {
		return false, fmt.Errorf("%w: the logs of transaction %s are truncated", archive.ErrArchive, landed.Transaction.Name())
	}
	for _, entry := range logged {
		e, err := event.Decode(entry)
		if err != nil {
			return false, fmt.Errorf("%w: %w", archive.ErrArchive, err)
		}
		record.Events = append(record.Events, e)
	}
	return a.Add(record)
}
