package history

import (
	"fmt"
	"maps"

	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
)

// maxPayers limits the keys whose payments are counted individually.
const maxPayers = 512

// EntryOfStep converts a step of a run on a chain to an Entry.
func EntryOfStep(step archive.Step) Entry {
	e := Entry{Number: step.Event.Sequence, Time: step.Event.Now}
	if action := step.Action(); action != nil {
		e.Actor, e.Action, e.Name = coordinator.ClientID(step.Actor), action, follow.ActionName(action)
	}
	return e
}

// Costs are the minimum fees of the transactions that changed a run on a chain. They exclude
// priority fees, which the run's log does not contain.
type Costs struct {
	Transactions int               `json:"transactions"`
	Lamports     uint64            `json:"lamports"`
	Payers       map[string]uint64 `json:"payers"` // lamports, by payer; the first maxPayers payers
	Account      string            `json:"account"`
	Program      string            `json:"program"`
	Head         string            `json:"head"`
}

// Payments counts the payments for a run on a chain. The zero value is ready to use.
type Payments struct {
	newest transaction.Signature
	paid   map[string]uint64
	total  uint64
}

// See counts the transaction of a step, once.
func (p *Payments) See(step archive.Step) {
	if step.Transaction == p.newest {
		return
	}
	if p.paid == nil {
		p.paid = make(map[string]uint64)
	}
	p.newest = step.Transaction
	fee := uint64(step.Signatures) * transaction.SignatureFee
	p.total += fee
	if payer := step.Signer.String(); len(p.paid) < maxPayers || p.paid[payer] > 0 {
		p.paid[payer] += fee
	}
}

// Costs returns the payments for the archive with the summary s.
func (p *Payments) Costs(s archive.Summary) Costs {
	return Costs{
		Transactions: s.Transactions, Lamports: p.total, Payers: maps.Clone(p.paid),
		Account: s.Run.String(), Program: s.Program.String(), Head: fmt.Sprintf("%x", s.Head),
	}
}
