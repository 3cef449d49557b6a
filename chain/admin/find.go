package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Positions of the run id in an account: its length, and its text.
const (
	idLengthAt = layout.StateOffset + 17
	idAt       = layout.StateOffset + 24
)

// Found is a run of a program.
type Found struct {
	Run     transaction.PublicKey
	Summary layout.Summary
}

// Runs returns the runs of a program that have a genesis, ordered by id and address. An empty id
// selects all runs.
func (c *Chain) Runs(ctx context.Context, program transaction.PublicKey, runID string) ([]Found, error) {
	return c.runs(ctx, program, runID)
}

// runs is Runs with additional filters.
func (c *Chain) runs(ctx context.Context, program transaction.PublicKey, runID string, further ...rpc.Filter) ([]Found, error) {
	filters := append([]rpc.Filter{{Offset: 0, Bytes: []byte(layout.RunMagic)}}, further...)
	if runID != "" {
		if len(runID) > layout.MaxRunIDLength {
			return nil, fmt.Errorf("run id %q: has %d bytes, at most %d fit on a chain", runID, len(runID), layout.MaxRunIDLength)
		}
		filters = append(filters,
			rpc.Filter{Offset: idLengthAt, Bytes: []byte{byte(len(runID))}}, rpc.Filter{Offset: idAt, Bytes: []byte(runID)})
	}
	accounts, err := c.heads(ctx, program, filters)
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, account := range accounts {
		summary, err := layout.ReadSummary(account.Data)
		if err != nil || summary.RunID == "" || runID != "" && summary.RunID != runID {
			continue // the account has no genesis, or the answer does not match the request
		}
		at, err := transaction.Program(program).RunAddress(transaction.PublicKey(summary.Main), summary.RunID)
		if err != nil || at != account.Key {
			continue // the node invented this account: a run of this key and id has another address
		}
		found = append(found, Found{account.Key, summary})
	}
	slices.SortFunc(found, func(a, b Found) int {
		return cmp.Or(strings.Compare(a.Summary.RunID, b.Summary.RunID), slices.Compare(a.Run[:], b.Run[:]))
	})
	return found, nil
}

// RunsOfJoinAuthority returns the open runs of a program that have a genesis and this join
// authority.
func (c *Chain) RunsOfJoinAuthority(ctx context.Context, program, join transaction.PublicKey) ([]Found, error) {
	found, err := c.runs(ctx, program, "", rpc.Filter{Offset: layout.JoinAuthorityOffset, Bytes: join[:]})
	return slices.DeleteFunc(found, func(f Found) bool { return f.Summary.Closed || f.Summary.RunState == coordinator.Finished }), err
}

// Unconfigured is a run's account without a genesis.
type Unconfigured struct {
	Run, Main transaction.PublicKey
	Lamports  uint64
	Draft     layout.Draft // zero if there is none, or if it is damaged
}

// Unconfigured returns the accounts of a program without a genesis. A run id selects the accounts
// whose addresses follow from that id and their main authority. An empty id selects all.
func (c *Chain) Unconfigured(ctx context.Context, program transaction.PublicKey, runID string) ([]Unconfigured, error) {
	filters := []rpc.Filter{{Offset: 0, Bytes: []byte(layout.RunMagic)}, {Offset: layout.RunStateOffset, Bytes: []byte{byte(coordinator.Uninitialized)}}}
	accounts, err := c.heads(ctx, program, filters)
	if err != nil {
		return nil, err
	}
	var found []Unconfigured
	for _, account := range accounts {
		summary, err := layout.ReadSummary(account.Data)
		if err != nil || summary.RunState != coordinator.Uninitialized {
			continue
		}
		if runID != "" {
			at, err := transaction.Program(program).RunAddress(transaction.PublicKey(summary.Main), runID)
			if err != nil || at != account.Key {
				continue
			}
		}
		one := Unconfigured{Run: account.Key, Main: transaction.PublicKey(summary.Main), Lamports: account.Lamports}
		if runID != "" {
			if one.Draft, _, err = c.draftAt(ctx, program, account.Key); err != nil && !errors.Is(err, layout.ErrDraft) {
				return nil, err
			}
		}
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b Unconfigured) int { return slices.Compare(a.Run[:], b.Run[:]) })
	return found, nil
}

// heads returns the first bytes of the accounts of runs, which contain their Summary.
func (c *Chain) heads(ctx context.Context, program transaction.PublicKey, filters []rpc.Filter) ([]rpc.KeyedAccount, error) {
	return rpc.Any(ctx, c.operator.Pool(), func(ctx context.Context, e *rpc.Endpoint) ([]rpc.KeyedAccount, error) {
		return e.ProgramAccounts(ctx, program, layout.AccountSize, filters, rpc.Query{Commitment: rpc.Confirmed, Slice: &rpc.Slice{Length: layout.HeadSize}})
	})
}

// checkConfigured returns ErrNotConfigured if a run with this id has an account but no genesis. A
// zero authority matches any.
func (c *Chain) checkConfigured(ctx context.Context, program transaction.PublicKey, runID string, authority transaction.PublicKey) error {
	waiting, err := c.Unconfigured(ctx, program, runID)
	if err != nil {
		return err
	}
	for _, u := range waiting {
		if authority == (transaction.PublicKey{}) || u.Main == authority {
			return fmt.Errorf("%w: run %q has the account %s, which holds %s SOL; its main authority %s configures it with: psyche run update-config --state FILE --run-id %s",
				ErrNotConfigured, runID, u.Run, SOL(u.Lamports), u.Main, runID)
		}
	}
	return nil
}

// Find returns the address of the run with this id, and with this main authority if authority is
// not zero. It returns ErrNotConfigured for a run without a genesis.
func (c *Chain) Find(ctx context.Context, program transaction.PublicKey, runID string, authority transaction.PublicKey) (transaction.PublicKey, error) {
	if authority != (transaction.PublicKey{}) {
		run, err := transaction.Program(program).RunAddress(authority, runID)
		if err != nil {
			return run, err
		}
		found, err := c.account(ctx, run, &rpc.Slice{Length: layout.HeadSize}, rpc.Confirmed)
		if err != nil || found == nil || found.Owner != program {
			return run, err // callers report that the account is missing
		}
		if summary, err := layout.ReadSummary(found.Data); err == nil && summary.RunState == coordinator.Uninitialized {
			return run, c.checkConfigured(ctx, program, runID, authority)
		}
		return run, nil
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
		if err := c.checkConfigured(ctx, program, runID, authority); err != nil {
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
	return transaction.PublicKey{}, fmt.Errorf("%w: select one of them by its main authority, with --authority KEY; run %q is%s", ErrSeveralRuns, runID, all.String())
}
