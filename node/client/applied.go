package client

import (
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/credits"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/event"
)

// applied reports that a round became part of the model.
func (r *reporter) applied(rs *roundState, o tally.Outcome, replica [32]byte, seconds float64, received uint64) {
	step, losses := rs.Round.Step, rs.Round.Losses()
	e := event.Applied{
		Step: step, Counted: len(o.Counted), OwnCounted: rs.isOwn(o), Replica: hexOf(replica), Seconds: seconds,
		Attested: len(o.Kept), OwnAttested: rs.isOwnKept(o),
	}
	said := []any{"step", step, "counted", e.Counted, "lost", len(o.Lost), "replica", e.Replica[:16]}
	if losses.Count > 0 {
		said = append(said, "claimed_loss", float64(losses.Median)/coordinator.LossUnit, "claims", losses.Count)
	}
	r.log.Debug("applied", said...)
	if r.events == nil {
		return
	}
	for _, s := range o.Lost {
		e.Lost = append(e.Lost, event.LostBatch{Batch: batchOf(s.Batch), Owner: identity.ID(s.Owner).String()})
	}
	r.emit(e)
	wire := r.total
	wire.Step, wire.PayloadReceived = step, received
	wire.P2PSent, wire.P2PReceived = r.network.Bytes()
	if counter, ok := r.backend.(interface {
		Bytes() (sent, received uint64)
	}); ok {
		wire.ServerSent, wire.ServerReceived = counter.Bytes()
	}
	r.emit(wire)
}

// credit records whose results counted in a round.
func (r *reporter) credit(rs *roundState, o tally.Outcome, names map[identity.ID]string) {
	step := rs.Round.Step
	round := credits.Round{Step: step, Names: names, Losses: rs.Round.Losses(), Start: rs.start}
	for _, c := range o.Counted {
		round.Results = append(round.Results, credits.Result{Owner: rs.Find(c.Batch).Owner, Sequences: c.Batch.Len()})
	}
	r.ledger.Round(round)
}
