package history

import (
	"fmt"
	"maps"

	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
)

// maxPayers bounds the keys whose payments are counted one by one.
const maxPayers = 512

// EntryOfStep is what a step of a run on a chain tells.
func EntryOfStep(step archive.Step) Entry {
	e := Entry{Number: step.Event.Sequence, Time: step.Event.Now}
	if action := step.Action(); action != nil {
		e.Actor, e.Action, e.Name = coordinator.ClientID(step.Actor), action, follow.ActionName(action)
	}
	return e
}

// Costs is what the transactions that changed a run on a chain were paid at least: the price that
// some offer to be faster than others is not in its log.
type Costs struct {
	Transactions int               `json:"transactions"`
	Lamports     uint64            `json:"lamports"`
	Payers       map[string]uint64 `json:"payers"` // lamports, by payer; those that paid first
	Account      string            `json:"account"`
	Program      string            `json:"program"`
	Head         string            `json:"head"`
}

// Payments counts what was paid for a run on a chain. The zero value has counted nothing.
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

// Costs says what was counted in the archive that a summary is of.
func (p *Payments) Costs(s archive.Summary) Costs {
	return Costs{
		Transactions: s.Transactions, Lamports: p.total, Payers: maps.Clone(p.paid),
		Account: s.Run.String(), Program: s.Program.String(), Head: fmt.Sprintf("%x", s.Head),
	}
}
