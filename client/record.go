package client

import (
	"context"

	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/books"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/client/fetch"
)

// recorded is what is kept of a round that is applied, for audits of its results: all that are
// held. What cannot be read is left out.
type recorded struct {
	round   audits.Round
	others  []*books.Candidate // held, and not counted
	slots   []*books.Slot      // of them
	counted []*books.Slot      // of the results that are applied
}

// record begins to note what is held of a round with that outcome.
func record(l *ledger, o books.Outcome) *recorded {
	r := &recorded{round: audits.Round{Step: l.Round.Step, EpochStart: l.EpochStart}}
	next := 0
	for i := range l.Slots {
		s := &l.Slots[i]
		if next < len(o.Counted) && o.Counted[next].Batch == s.Batch {
			r.counted = append(r.counted, s)
			next++
		} else if c := l.HeldOf(s); c != nil {
			r.others, r.slots = append(r.others, c), append(r.slots, s)
		}
	}
	return r
}

// read reads the heads of the results, given those that are applied.
func (r *recorded) read(ctx context.Context, blobs env.Blobs, o books.Outcome, payloads [][]byte) {
	for i, s := range r.counted {
		r.add(s, o.Counted[i].Commitment, payloads[i], true)
	}
	for i, c := range r.others {
		if held, _, err := fetch.Read(ctx, blobs, []*books.Candidate{c}); err == nil {
			r.add(r.slots[i], c.Commitment, held[0], false)
		}
	}
}

func (r *recorded) add(s *books.Slot, commitment [32]byte, payload []byte, counted bool) {
	head, err := audits.HeadOf(payload, r.round.EpochStart, counted)
	if err != nil {
		return // the trainer has verified it: it is of a kind that nobody audits
	}
	r.round.Results = append(r.round.Results, audits.Result{
		Owner: s.Owner, Batch: s.Batch, Commitment: commitment, Size: uint32(len(payload)), Head: head,
	})
}
