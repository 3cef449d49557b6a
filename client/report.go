package client

import (
	"encoding/hex"
	"log/slog"
	"reflect"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/client/books"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// reporter writes what people follow into the event log and the log.
type reporter struct {
	events  *event.Log // may be nil
	log     *slog.Logger
	network env.Network
	backend env.Backend
	seen    event.State // newest that was written
	court   event.Court
	total   event.Wire
}

// emit writes an event; a log that cannot be written does not stop the training.
func (r *reporter) emit(body event.Body) {
	if err := r.events.Append(body); err != nil {
		r.log.Error("write event", "err", err)
	}
}

// state writes an event when something of the state changed that people follow.
func (r *reporter) state(v *view) {
	if r.events == nil {
		return
	}
	s, now := v.state, event.StateOf(v.state)
	now.IsMember = v.isMember()
	if !reflect.DeepEqual(r.seen, now) {
		r.seen = now
		r.emit(now)
	}
	r.court.Member = v.myself()
	for _, news := range r.court.News(s) {
		r.emit(news)
	}
}

// foreign reports a held result that was made from another model.
func (r *reporter) foreign(b *books.Book, s *books.Slot, c *books.Candidate) {
	if b.Began && c.State == books.Held && c.Replica != b.Replica {
		r.rejected(b, s, "made from another replica of the model")
	}
}

// rejected reports a result that is not counted here.
func (r *reporter) rejected(b *books.Book, s *books.Slot, reason string) {
	from := identity.ID(s.Owner)
	r.log.Warn("result rejected", "step", b.Round.Step, "batch", s.Batch, "from", from.Short(), "reason", reason)
	r.emit(event.Rejected{Step: b.Round.Step, Batch: batchOf(s.Batch), From: from.String(), Reason: reason})
}

// equivocation reports a trainer that signed two results.
func (r *reporter) equivocation(l *ledger, u utterance) {
	a := u.announcement
	r.log.Warn("a trainer signed two results", "step", a.Step, "batch", a.Batch, "from", u.author.Short())
	e := event.Equivocation{Step: a.Step, Batch: batchOf(a.Batch), From: u.author.String()}
	for _, c := range l.Find(a.Batch).Candidates {
		e.Commitments = append(e.Commitments, hexOf(c.Commitment))
	}
	r.emit(e)
}

// held reports that every result of the running round that can be expected is held.
func (r *reporter) held(l *ledger) {
	e := event.ResultsHeld{Step: l.Round.Step, Batches: len(l.Slots)}
	for i := range l.Slots {
		if l.HeldOf(&l.Slots[i]) != nil {
			e.Held++
		}
	}
	if newest := l.Newest(); newest != nil {
		e.FetchSeconds = newest.Took.Seconds()
	}
	r.emit(e)
}

// applied reports that a round became part of the model.
func (r *reporter) applied(step uint32, o books.Outcome, own bool, replica [32]byte, seconds float64, received uint64) {
	e := event.Applied{Step: step, Counted: len(o.Counted), OwnCounted: own, Replica: hexOf(replica), Seconds: seconds}
	r.log.Info("applied", "step", step, "counted", e.Counted, "lost", len(o.Lost), "replica", e.Replica[:16])
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

// hexOf is how hashes are written in events and messages.
func hexOf(hash [32]byte) string { return hex.EncodeToString(hash[:]) }

func batchOf(b assign.BatchID) event.Batch { return event.Batch{b.Start, b.End} }
