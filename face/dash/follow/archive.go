package follow

import (
	"fmt"

	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/record/follow"
)

// maxPayers bounds the keys whose payments are counted one by one.
const maxPayers = 512

type archiveReader struct {
	path     string
	follower archive.Follower
	newest   transaction.Signature
	paid     map[string]uint64
	total    uint64
}

func newArchiveReader(path string) *archiveReader {
	return &archiveReader{path: path, paid: make(map[string]uint64)}
}

func (r *archiveReader) read(see func(history.Entry, *coordinator.State) error) error {
	return r.follower.Read(r.path, func(step archive.Step, s *coordinator.State) error {
		r.pay(step)
		e := history.Entry{Number: step.Event.Sequence, Time: step.Event.Now}
		if action := step.Action(); action != nil {
			e.Actor, e.Action, e.Name = coordinator.ClientID(step.Actor), action, follow.ActionName(action)
		}
		return see(e, s)
	})
}

// pay counts a transaction once.
func (r *archiveReader) pay(step archive.Step) {
	if step.Transaction == r.newest {
		return
	}
	r.newest = step.Transaction
	fee := uint64(step.Signatures) * admin.Transactions(1).Fees
	r.total += fee
	if payer := step.Signer.String(); len(r.paid) < maxPayers || r.paid[payer] > 0 {
		r.paid[payer] += fee
	}
}

func (r *archiveReader) state() (*coordinator.State, bool) { return r.follower.State() }

func (r *archiveReader) until() int64 { return r.follower.ReadUntil() }

func (r *archiveReader) run() [32]byte { return [32]byte{} }

func (r *archiveReader) keep(*history.History) error { return nil }

func (r *archiveReader) extent() *Extent { return nil }

func (r *archiveReader) costs() Costs {
	s := r.follower.Summary()
	payers := make(map[string]uint64, len(r.paid))
	for payer, lamports := range r.paid {
		payers[payer] = lamports
	}
	return Costs{
		Transactions: s.Transactions, Lamports: r.total, Payers: payers,
		Account: s.Run.String(), Program: s.Program.String(), Head: fmt.Sprintf("%x", s.Head),
	}
}
