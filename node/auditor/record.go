package auditor

import (
	"context"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/tally"
)

// Record is what is kept of a round that is applied, for audits of its results: all that are held.
type Record struct {
	round    appliedRound
	outcome  tally.Outcome
	counted  []*tally.Slot       // of the results that are applied
	signed   map[[32]byte][]byte // announcements of results that are held, by commitment
	payloads *payloadStore
	trainer  env.Auditor
	err      error // why it is not kept
}

// Record begins to note what is held of a round of an epoch with that cold start; nil where nothing is
// audited. When the round is applied, Read and then Keep are called.
func (a *Auditor) Record(b *tally.Tally, o tally.Outcome, coldSteps uint32) *Record {
	trainer := a.Engine.Auditor()
	if trainer == nil {
		return nil
	}
	r := &Record{
		round:   appliedRound{Step: b.Round.Step, EpochStart: b.EpochStart, ColdSteps: coldSteps},
		outcome: o, payloads: a.payloads, trainer: trainer, signed: make(map[[32]byte][]byte),
	}
	for i, c := range o.Counted {
		r.counted = append(r.counted, b.Find(c.Batch))
		if i < len(o.Sources) && o.Sources[i] != nil {
			r.signed[c.Commitment] = o.Sources[i].Announcement()
		}
	}
	known := make(map[coordinator.ClientID]bool, len(b.Slots))
	for _, s := range r.counted {
		known[s.Owner] = true
	}
	for _, kept := range o.Kept {
		known[kept.Slot.Owner] = true
		r.signed[kept.Candidate.Commitment] = kept.Candidate.Announcement()
	}
	for i := range b.Slots {
		owner := b.Slots[i].Owner
		if !known[owner] && b.Round.Score(owner) >= int(b.Round.WitnessesNeeded) {
			r.round.Unheard = append(r.round.Unheard, owner)
		}
	}
	return r
}

// Read reads the headers of the results, given the bytes of those that are applied. Where they cannot
// be kept this client can audit nothing of the round, and what follows is applied all the same. It may
// be called from any goroutine.
func (r *Record) Read(ctx context.Context, blobs env.Blobs, payloads [][]byte) {
	if r != nil {
		r.err = r.read(ctx, blobs, payloads)
	}
}

func (r *Record) read(ctx context.Context, blobs env.Blobs, payloads [][]byte) error {
	for i, s := range r.counted {
		if err := r.add(s, r.outcome.Counted[i].Commitment, payloads[i], true); err != nil {
			return err
		}
	}
	for _, kept := range r.outcome.Kept {
		var payload []byte // nil: it was not to be had
		if read, _, err := fetch.Read(ctx, blobs, []*tally.Candidate{kept.Candidate}); err == nil && kept.Candidate.State == tally.Held {
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
	r.round.Senders = newSenderCounts(counted, r.payloads.Get, r.trainer.Decode)
	return nil
}

func (r *Record) add(s *tally.Slot, commitment [32]byte, payload []byte, counted bool) error {
	result := heldResult{Owner: s.Owner, Batch: s.Batch, Commitment: commitment, Size: uint32(len(payload)), Counted: counted, Since: s.OptimizerSince, Announced: string(r.signed[commitment])}
	result.Header.Step = r.round.Step
	if payload != nil {
		header, _, err := r.trainer.Decode(payload)
		if err == nil {
			err = r.payloads.Put(commitment, payload)
		}
		if err != nil {
			return err
		}
		result.Header = header
	}
	r.round.Results = append(r.round.Results, result)
	return nil
}

// Keep takes over what is kept of a round that was applied; nil: nothing is.
func (a *Auditor) Keep(r *Record) {
	switch {
	case r == nil:
	case r.err != nil:
		for _, result := range r.round.Results {
			a.payloads.Drop(result.Commitment)
		}
		a.Log.Warn("the results of a round are not kept: this client audits nothing of it", "step", r.round.Step, "err", r.err)
	default:
		r.round.At = a.Tasks.Now()
		a.payloads.Drop(a.past.Add(r.round, a.needed(r.round.Step))...)
	}
}
