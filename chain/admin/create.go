package admin

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Creation is a plan for the remaining steps to create a run.
type Creation struct {
	Run  transaction.PublicKey
	Cost Cost

	program transaction.PublicKey
	runID   string
	missing uint64               // rent still to pay, without lamports that the account already holds
	genesis *coordinator.Genesis // nil: only create the account
	draft   []byte               // nil: store none
	there   bool
}

// wholeUnits is the compute limit of transactions whose instructions process the whole account.
const wholeUnits = 400_000

// PlanCreate plans the creation of a run whose main authority is the payer. It skips parts that are
// already on the chain. Without a genesis, the plan only creates the account, with the draft if it
// is not nil, and a later genesis starts the run.
func (c *Chain) PlanCreate(ctx context.Context, program transaction.PublicKey, runID string, genesis *coordinator.Genesis, draft *layout.Draft) (*Creation, error) {
	if len(runID) == 0 || len(runID) > layout.MaxRunIDLength {
		return nil, fmt.Errorf("run id %q: has %d bytes, want 1 to %d on a chain", runID, len(runID), layout.MaxRunIDLength)
	}
	if err := c.CheckProgram(ctx, program); err != nil {
		return nil, err
	}
	p := &Creation{program: program, runID: runID, genesis: genesis}
	var err error
	if draft != nil {
		if p.draft, err = layout.AppendDraft(nil, *draft); err != nil {
			return nil, err
		}
	}
	if p.Run, err = transaction.Program(program).RunAddress(c.Payer(), runID); err != nil {
		return nil, err
	}
	found, err := c.account(ctx, p.Run, &rpc.Slice{Length: layout.HeadSize}, rpc.Confirmed)
	if err != nil {
		return nil, err
	}
	if found != nil && found.Owner == program {
		summary, err := layout.ReadSummary(found.Data)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %s: %w", ErrTaken, p.Run, err)
		case summary.RunState != coordinator.Uninitialized:
			return nil, fmt.Errorf("%w: this key has already begun run %s, at %s; choose another id", ErrTaken, runID, p.Run)
		}
		p.there = true
		if p.draft != nil {
			p.Cost = Transactions(1)
		}
	} else {
		if p.Cost.Rent, err = c.rent(ctx, layout.AccountSize); err != nil {
			return nil, err
		}
		p.missing = missing(p.Cost.Rent, found)
		p.Cost = Cost{Rent: p.Cost.Rent, Fees: transaction.SignatureFee, Transactions: 1}
	}
	if genesis != nil {
		staged := len(layout.AppendGenesis(nil, *genesis))
		more := Transactions(1 + (staged+transaction.MaxRunWrite-1)/transaction.MaxRunWrite)
		p.Cost.Fees += more.Fees
		p.Cost.Transactions += more.Transactions
	}
	return p, nil
}

// Create executes a plan.
func (c *Chain) Create(ctx context.Context, p *Creation) error {
	if err := c.Need(ctx, p.Cost); err != nil {
		return err
	}
	if p.genesis != nil {
		o := c.options
		o.Program = p.program
		_, err := solana.Create(ctx, o, *p.genesis)
		return err
	}
	payer, program := c.Payer(), transaction.Program(p.program)
	var all []transaction.Instruction
	if !p.there {
		made, err := transaction.MakeWithSeed(payer, payer, p.runID, p.missing, layout.AccountSize, p.program)
		if err != nil {
			return err
		}
		all = append(made, program.Init(p.Run, payer))
	}
	if p.draft != nil {
		all = append(all, program.Write(p.Run, payer, layout.DraftOffset, p.draft))
	}
	if len(all) == 0 {
		return nil
	}
	return c.operator.Send(ctx, "create the run's account", wholeUnits, all...)
}

// Draft returns the draft in the account of the payer's run. It reports false if there is none, and
// returns layout.ErrDraft if it is damaged.
func (c *Chain) Draft(ctx context.Context, program transaction.PublicKey, runID string) (layout.Draft, bool, error) {
	run, err := transaction.Program(program).RunAddress(c.Payer(), runID)
	if err != nil {
		return layout.Draft{}, false, err
	}
	return c.draftAt(ctx, program, run)
}

// draftAt is Draft for the address of a run's account.
func (c *Chain) draftAt(ctx context.Context, program, run transaction.PublicKey) (layout.Draft, bool, error) {
	found, err := c.account(ctx, run, &rpc.Slice{Offset: layout.StageOffset + layout.DraftOffset, Length: layout.DraftSize}, rpc.Confirmed)
	if err != nil || found == nil || found.Owner != program {
		return layout.Draft{}, false, err
	}
	return layout.ReadDraft(found.Data)
}

// missing returns the lamports that an account needs in addition to those already there.
func missing(rent uint64, found *rpc.Account) uint64 {
	if found == nil {
		return rent
	}
	return rent - min(rent, found.Lamports)
}

// PlanFree returns the lamports that freeing a run's account returns.
func (c *Chain) PlanFree(ctx context.Context, program, run transaction.PublicKey) (uint64, error) {
	found, err := c.account(ctx, run, &rpc.Slice{Length: layout.HeadSize}, rpc.Confirmed)
	switch {
	case err != nil:
		return 0, err
	case found == nil || found.Owner != program:
		return 0, fmt.Errorf("%w: %s", ErrNoRun, run)
	}
	summary, err := layout.ReadSummary(found.Data)
	if err != nil {
		return found.Lamports, nil // the program also frees accounts of versions that it cannot read
	}
	switch {
	case summary.Main != c.Payer():
		return 0, fmt.Errorf("run %s: %w: the main authority is %s; pass its key with --keypair", run, ErrNotMain, transaction.PublicKey(summary.Main))
	case summary.RunState != coordinator.Uninitialized && !summary.Closed:
		return 0, fmt.Errorf("run %s: %w; close it first, with psyche run close", run, ErrOpen)
	}
	return found.Lamports, nil
}

// Free closes a closed run's account and transfers its lamports to spill. The run's results on the
// chain are lost; use an archive to keep them.
func (c *Chain) Free(ctx context.Context, program, run, spill transaction.PublicKey) error {
	free := []transaction.Instruction{transaction.Program(program).Free(run, c.Payer(), spill)}
	if summary, err := c.Summary(ctx, run, rpc.Confirmed); err == nil && summary.Closed && summary.RunState != coordinator.Finished {
		// No tick has moved the run to Finished yet.
		free = append([]transaction.Instruction{transaction.Program(program).Tick(run, nil)}, free...)
	}
	return c.operator.Send(ctx, "free the run's account", wholeUnits, free...)
}

// Forget closes the account of the payer's addresses for a run and returns its lamports to the
// payer. It returns the number of lamports, or 0 if there is no account.
func (c *Chain) Forget(ctx context.Context, program, run transaction.PublicKey) (uint64, error) {
	peer, err := transaction.Program(program).PeerAddress(c.Payer(), run)
	if err != nil {
		return 0, err
	}
	found, err := c.account(ctx, peer, &rpc.Slice{Length: 0}, rpc.Confirmed)
	if err != nil || found == nil || found.Owner != program {
		return 0, err
	}
	return found.Lamports, c.operator.Send(ctx, "free the account of addresses", createUnits, transaction.Program(program).Forget(peer, c.Payer(), c.Payer()))
}

// HasBegun reports whether the payer's run with an id has its genesis. It also reports true if there
// is no account to add a genesis to.
func (c *Chain) HasBegun(ctx context.Context, program transaction.PublicKey, runID string) (bool, error) {
	run, err := transaction.Program(program).RunAddress(c.Payer(), runID)
	if err != nil {
		return false, err
	}
	found, err := c.account(ctx, run, &rpc.Slice{Length: layout.HeadSize}, rpc.Confirmed)
	if err != nil || found == nil || found.Owner != program {
		return true, err
	}
	summary, err := layout.ReadSummary(found.Data)
	return summary.RunState != coordinator.Uninitialized, err
}

// CostToJoin returns the cost of the account for the payer's addresses in a run.
func (c *Chain) CostToJoin(ctx context.Context, program, run transaction.PublicKey) (Cost, error) {
	peer, err := transaction.Program(program).PeerAddress(c.Payer(), run)
	if err != nil {
		return Cost{}, err
	}
	found, err := c.account(ctx, peer, &rpc.Slice{Length: 0}, rpc.Confirmed)
	if err != nil || found != nil && found.Owner == program {
		return Cost{}, err
	}
	rent, err := c.rent(ctx, layout.PeerSize)
	cost := Transactions(1)
	cost.Rent = rent
	return cost, err
}
