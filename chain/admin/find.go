package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Where an account has the run's id: its length, and its text.
const (
	idLengthAt = layout.StateOffset + 17
	idAt       = layout.StateOffset + 24
)

// Found is a run of a program.
type Found struct {
	Run     transaction.PublicKey
	Summary layout.Summary
}

// Runs returns the runs of a program that have begun, ordered by id and address. An empty id
// stands for all of them.
func (c *Chain) Runs(ctx context.Context, program transaction.PublicKey, runID string) ([]Found, error) {
	filters := []rpc.Filter{{Offset: 0, Bytes: []byte(layout.RunMagic)}}
	if runID != "" {
		if len(runID) > layout.MaxRunIDLength {
			return nil, fmt.Errorf("run id %q: has %d bytes, at most %d fit on a chain", runID, len(runID), layout.MaxRunIDLength)
		}
		filters = append(filters,
			rpc.Filter{Offset: idLengthAt, Bytes: []byte{byte(len(runID))}}, rpc.Filter{Offset: idAt, Bytes: []byte(runID)})
	}
	accounts, err := rpc.Any(ctx, c.operator.Pool(), func(ctx context.Context, e *rpc.Endpoint) ([]rpc.KeyedAccount, error) {
		return e.ProgramAccounts(ctx, program, layout.AccountSize, filters, rpc.Query{Commitment: rpc.Confirmed, Slice: &rpc.Slice{Length: layout.HeadSize}})
	})
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, account := range accounts {
		summary, err := layout.ReadSummary(account.Data)
		if err != nil || summary.RunID == "" || runID != "" && summary.RunID != runID {
			continue // it has not begun, or a node answers what was not asked
		}
		at, err := transaction.Program(program).RunAddress(transaction.PublicKey(summary.Main), summary.RunID)
		if err != nil || at != account.Key {
			continue // a node made it up
		}
		found = append(found, Found{account.Key, summary})
	}
	slices.SortFunc(found, func(a, b Found) int {
		return cmp.Or(strings.Compare(a.Summary.RunID, b.Summary.RunID), slices.Compare(a.Run[:], b.Run[:]))
	})
	return found, nil
}

// Find returns the address of a run by its id, and that of its main authority if that is not zero.
func (c *Chain) Find(ctx context.Context, program transaction.PublicKey, runID string, authority transaction.PublicKey) (transaction.PublicKey, error) {
	if authority != (transaction.PublicKey{}) {
		return transaction.Program(program).RunAddress(authority, runID)
	}
	found, err := c.Runs(ctx, program, runID)
	if err != nil {
		return transaction.PublicKey{}, err
	}
	switch len(found) {
	case 0:
		if err := c.CheckProgram(ctx, program); err != nil {
			return transaction.PublicKey{}, err
		}
		cluster, err := c.Cluster(ctx)
		if err != nil {
			return transaction.PublicKey{}, err
		}
		return transaction.PublicKey{}, fmt.Errorf("%w: %q, of program %s, on %s; psyche run list shows the existing runs", ErrNoRun, runID, program, cluster)
	case 1:
		return found[0].Run, nil
	}
	var all strings.Builder
	for _, f := range found {
		fmt.Fprintf(&all, "\n  %s, of %s, %s", f.Run, transaction.PublicKey(f.Summary.Main), f.Summary.RunState)
	}
	return transaction.PublicKey{}, fmt.Errorf("%w: name the main authority of the right one with --authority KEY; run %q is%s", ErrSeveralRuns, runID, all.String())
}
