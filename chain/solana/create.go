package solana

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// createUnits is the compute limit of Create's transactions, which process the whole account.
const createUnits = 400_000

// Create starts a run with o.Key as its main authority, and returns the run's address once it is on
// the chain. It sets the host and the main authority of genesis. It resumes an earlier attempt that
// was interrupted.
func Create(ctx context.Context, o Options, genesis coordinator.Genesis) (transaction.PublicKey, error) {
	run, err := create(ctx, o, genesis)
	if err != nil {
		return transaction.PublicKey{}, fmt.Errorf("create run %s: %w", genesis.RunID, err)
	}
	return run, nil
}

func create(ctx context.Context, o Options, genesis coordinator.Genesis) (run transaction.PublicKey, err error) {
	main := transaction.PublicKey(o.Key.ID())
	program := transaction.Program(o.Program)
	if run, err = program.RunAddress(main, genesis.RunID); err != nil {
		return run, err
	}
	o.Run = run
	if err := o.check(); err != nil {
		return run, err
	}
	genesis.Host, genesis.MainAuthority = coordinator.ClientID(run), coordinator.ClientID(main)
	if genesis.JoinAuthority == (coordinator.ClientID{}) {
		genesis.JoinAuthority = genesis.MainAuthority
	}
	if _, err := genesis.State(); err != nil {
		return run, err
	}
	pool, err := rpc.NewPool(rpc.Options{Endpoints: o.Endpoints, Transport: o.Transport})
	if err != nil {
		return run, err
	}
	defer pool.Close()
	s := newSender(pool, o.Pace, o.Logger.With("run", run), o.Key, o.MaxPrice)
	begun, err := s.makeAccount(ctx, program, run, genesis.RunID)
	switch {
	case err != nil:
		return run, err
	case begun:
		return run, errors.New("this key has already begun a run with this id; choose another id")
	}
	staged := layout.AppendGenesis(nil, genesis)
	if err := s.stage(ctx, program, run, staged); err != nil {
		return run, fmt.Errorf("stage the genesis: %w", err)
	}
	return run, s.bring(ctx, order{name: "genesis", instructions: []transaction.Instruction{program.Genesis(run, main, staged)}, units: createUnits})
}

// makeAccount creates the account of a run if it does not exist. It reports whether the run has
// already started.
func (s *sender) makeAccount(ctx context.Context, program transaction.Program, run transaction.PublicKey, runID string) (begun bool, err error) {
	found, err := rpc.AnyOf(ctx, s.trusted(0), func(ctx context.Context, e *rpc.Endpoint) (*rpc.Account, error) {
		account, _, err := e.Account(ctx, run, rpc.Query{Commitment: rpc.Confirmed, Slice: &rpc.Slice{Length: layout.HeadSize}})
		return account, err
	})
	if err != nil {
		return false, s.disconnected(ctx, err)
	}
	if found != nil && found.Owner == transaction.PublicKey(program) {
		summary, err := layout.ReadSummary(found.Data)
		return summary.RunState != coordinator.Uninitialized, err
	}
	rent, err := s.rentOf(ctx, layout.AccountSize)
	if err != nil {
		return false, err
	}
	if err := s.checkFunds(ctx, rent+100*transaction.SignatureFee); err != nil {
		return false, err
	}
	made, err := transaction.MakeWithSeed(s.key, s.key, runID, missing(rent, found), layout.AccountSize, transaction.PublicKey(program))
	if err != nil {
		return false, err
	}
	return false, s.bring(ctx, order{name: "account of the run", instructions: append(made, program.Init(run, s.key)), units: createUnits})
}

// stage writes bytes into the account's staging area, in separate transactions.
func (s *sender) stage(ctx context.Context, program transaction.Program, run transaction.PublicKey, staged []byte) error {
	for _, in := range program.Writes(run, s.key, staged, transaction.MaxRunWrite) {
		if err := s.bring(ctx, order{name: "staging", instructions: []transaction.Instruction{in}, units: writeUnits}); err != nil {
			return err
		}
	}
	return nil
}
