package auditor

import (
	"context"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/tally"
)

// Record contains all attested results of an applied round, for later audits.
type Record struct {
	round    appliedRound
	kept     []*tally.Candidate // attested results that are not applied, last in the round's results
	payloads *payloadStore
	trainer  env.Auditor
	err      error // reason why the round cannot be kept
}

// Record starts the record of a round. b and o are its tally and outcome, and coldSteps is the
// length of the epoch's cold start. It returns nil in a run without audits. After the round is
// applied, the caller must call Read and then Keep.
func (a *Auditor) Record(t *tally.Tally, o tally.Outcome, coldSteps uint32) *Record {
	trainer := a.Engine.Auditor()
	if trainer == nil {
		return nil
	}
	r := &Record{round: appliedRound{Step: t.Round.Step, EpochStart: t.EpochStart, ColdSteps: coldSteps, Data: dataOf(&t.Round)}, payloads: a.payloads, trainer: trainer}
	known := make(map[coordinator.ClientID]bool, len(t.Slots))
	add := func(s *tally.Slot, commitment [32]byte, of *tally.Candidate, counted bool) {
		result := attestedResult{Owner: s.Owner, Batch: s.Batch, Commitment: commitment, Counted: counted, Vote: s.Vote, Since: s.OptimizerSince}
		if result.Header.Step = t.Round.Step; of != nil {
			result.Announced = string(of.Announcement())
		}
		r.round.Results = append(r.round.Results, result)
		known[s.Owner] = true
	}
	for i, c := range o.Counted {
		var source *tally.Candidate
		if i < len(o.Sources) {
			source = o.Sources[i]
		}
		add(t.Find(c.Batch), c.Commitment, source, true)
	}
	for _, kept := range o.Kept {
		add(kept.Slot, kept.Candidate.Commitment, kept.Candidate, false)
		r.kept = append(r.kept, kept.Candidate)
	}
	for i := range t.Slots {
		owner := t.Slots[i].Owner
		if !known[owner] && t.Round.Score(owner) >= int(t.Round.WitnessesNeeded) {
			r.round.Unknown = append(r.round.Unknown, owner)
		}
	}
	return r
}

// dataOf returns the fields of a round that determine the sequences of its batches.
func dataOf(r *coordinator.Round) coordinator.Round {
	return coordinator.Round{Step: r.Step, Position: r.Position, DataIndex: r.DataIndex, BatchSize: r.BatchSize, Retries: r.Retries}
}

// Read reads the headers of the results. payloads are the bytes of the applied results. If the
// results cannot be stored, this client cannot audit the round, but the round is still applied.
// Read may be called from any goroutine.
func (r *Record) Read(ctx context.Context, blobs env.Blobs, payloads [][]byte) {
	if r != nil {
		r.err = r.read(ctx, blobs, payloads)
	}
}

func (r *Record) read(ctx context.Context, blobs env.Blobs, payloads [][]byte) (err error) {
	var counted [][32]byte
	for i := range r.round.Results {
		result := &r.round.Results[i]
		var payload []byte // nil: not available
		if result.Counted {
			payload = payloads[i]
			counted = append(counted, result.Commitment)
		} else {
			c := r.kept[i-len(payloads)]
			if read, _, err := fetch.Read(ctx, blobs, []*tally.Candidate{c}); err == nil && c.State == tally.Held {
				payload = read[0]
			}
		}
		if payload == nil {
			continue
		}
		if result.Header, _, err = r.trainer.Decode(payload); err == nil {
			err = r.payloads.put(result.Commitment, payload)
		}
		if err != nil {
			return err
		}
	}
	r.round.Senders = &senderCounts{counted: counted, read: r.payloads.Get, decode: r.trainer.Decode}
	return nil
}

// Keep stores the record of a round that was applied. r may be nil.
func (a *Auditor) Keep(r *Record) {
	switch {
	case r == nil:
	case r.err != nil:
		for _, result := range r.round.Results {
			a.payloads.drop(result.Commitment)
		}
		a.Log.Warn("cannot keep the results of a round; this client does not audit the round", "step", r.round.Step, "err", r.err)
	default:
		r.round.At = a.Tasks.Now()
		a.payloads.drop(a.past.Add(r.round, a.needed(r.round.Step), keptRounds(a.Client.State().Config))...)
	}
}
