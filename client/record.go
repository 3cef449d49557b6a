package client

import (
	"context"

	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/books"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/client/fetch"
	"github.com/psyche-go/psyche/coordinator"
)

// record is what is kept of a round that is applied, for audits of its results: all that are held.
type record struct {
	round   audits.Round
	outcome books.Outcome
	counted []*books.Slot // of the results that are applied
	depot   *audits.Depot
	trainer env.Auditor
	since   map[coordinator.ClientID]uint32 // first step that each trainer's optimizer remembers
}

// newRecord begins to note what is held of a round.
func (d *duties) newRecord(l *ledger, o books.Outcome, coldSteps uint32, trainer env.Auditor, sinceOf func(coordinator.ClientID) uint32) *record {
	r := &record{
		round:   audits.Round{Step: l.Round.Step, EpochStart: l.EpochStart, ColdSteps: coldSteps},
		outcome: o, depot: d.depot, trainer: trainer, since: make(map[coordinator.ClientID]uint32, len(l.Slots)),
	}
	for _, c := range o.Counted {
		r.counted = append(r.counted, l.Find(c.Batch))
	}
	known := make(map[coordinator.ClientID]bool, len(l.Slots))
	for _, s := range r.counted {
		known[s.Owner] = true
	}
	for _, kept := range o.Kept {
		known[kept.Slot.Owner] = true
	}
	for i := range l.Slots {
		r.since[l.Slots[i].Owner] = sinceOf(l.Slots[i].Owner)
		if owner := l.Slots[i].Owner; !known[owner] && l.Round.Score(owner) >= int(l.Round.WitnessesNeeded) {
			r.round.Unheard = append(r.round.Unheard, owner)
		}
	}
	return r
}

// read reads the headers of the results, given the bytes of those that are applied. It fails where
// they cannot be kept: then this client can audit nothing of the round, and what follows is applied
// all the same.
func (r *record) read(ctx context.Context, blobs env.Blobs, payloads [][]byte) error {
	for i, s := range r.counted {
		if err := r.add(s, r.outcome.Counted[i].Commitment, payloads[i], true); err != nil {
			return err
		}
	}
	for _, kept := range r.outcome.Kept {
		var payload []byte // nil: it was not to be had
		if read, _, err := fetch.Read(ctx, blobs, []*books.Candidate{kept.Candidate}); err == nil && kept.Candidate.State == books.Held {
			payload = read[0]
		}
		if err := r.add(kept.Slot, kept.Candidate.Commitment, payload, false); err != nil {
			return err
		}
	}
	counted := make([][32]byte, len(r.outcome.Counted))
	for i, c := range r.outcome.Counted {
		counted[i] = c.Commitment
	}
	r.round.Senders = audits.NewSenders(counted, r.depot.Get, r.trainer.Decode)
	return nil
}

func (r *record) add(s *books.Slot, commitment [32]byte, payload []byte, counted bool) error {
	result := audits.Result{Owner: s.Owner, Batch: s.Batch, Commitment: commitment, Size: uint32(len(payload)), Counted: counted, Since: r.since[s.Owner]}
	result.Header.Step = r.round.Step
	if payload != nil {
		header, _, err := r.trainer.Decode(payload)
		if err == nil {
			err = r.depot.Put(commitment, payload)
		}
		if err != nil {
			return err
		}
		result.Header = header
	}
	r.round.Results = append(r.round.Results, result)
	return nil
}
