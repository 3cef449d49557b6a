package client

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/credits"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
)

// reporter writes the event log and the log.
type reporter struct {
	events  *event.Log // may be nil
	dir     string     // folder for checkpoints; may be empty
	log     *slog.Logger
	network env.Network
	backend env.Backend
	seen    event.State // newest written state
	court   event.Court
	names   event.Names
	total   event.Wire
	ledger  credits.Ledger
}

// emit writes an event. An error of the event log does not stop the training.
func (r *reporter) emit(body event.Body) { r.events.Note(r.log, body) }

// state writes an event if a relevant part of the state has changed.
func (r *reporter) state(v *view) {
	if r.events == nil {
		return
	}
	s, now := v.state, event.StateOf(v.state)
	now.IsMember = v.isMember()
	now.Probation = s.ProbationLeft(v.myself())
	if !reflect.DeepEqual(r.seen, now) {
		r.seen = now
		r.emit(now)
	}
	for _, news := range r.names.News(v.names()) {
		r.emit(news)
	}
	r.court.Member = v.myself()
	for _, news := range r.court.News(s) {
		r.emit(news)
	}
}

// say logs a report, and writes the event that belongs to it.
func (r *reporter) say(report core.Report, s *coordinator.State) {
	switch said := report.(type) {
	case core.Joined:
		r.log.Info("joined", "epoch", said.Epoch)
		r.emit(event.Joined{Epoch: said.Epoch})
	case core.IsReady:
		r.log.Info("ready", "epoch", said.Epoch)
	case core.Returned:
		if said.Asked {
			r.log.Info("took its seat back", "epoch", said.Epoch)
		}
		r.emit(event.Rejoined{Epoch: said.Epoch, Step: s.Progress.Step})
	case core.Rebuilds:
		r.log.Info("new configuration of the run; rebuilding the trainer", "epoch", said.Epoch)
	case core.LoadsWhole:
		r.log.Warn("fetching the whole model", "err", said.Err)
	case core.TakenUnavailable:
		r.log.Info("intermediate checkpoint of the running epoch unavailable", "step", said.Step, "will_retry", said.Retries, "err", said.Err)
	case core.CannotRejoin:
		r.log.Warn("cannot rejoin the running epoch", "step", said.Step, "will_retry", said.Retries, "err", said.Err)
	case core.LacksModel:
		r.log.Log(context.Background(), modelsync.Level(said.Tries), "cannot get the model from peers; trying again", "err", said.Err)
	case core.AwaitsHolder:
		r.log.Warn(awaitsHolder(said))
	case core.Reported:
		r.log.Info("reported checkpoint", "step", said.Step, "digest", hexOf(said.Digest)[:16])
	case core.Waiting:
		if said.Want > 0 {
			r.log.Info(waitingText(said), "have", said.Have, "want", said.Want)
		} else {
			r.log.Info(waitingText(said))
		}
	case core.Leaves:
		r.log.Info("leaving: this client stops training and reports its model; a second Ctrl-C ends it at once", "limit", said.Limit)
	case core.StillLeaving:
		r.log.Info("leaving: the model is still being copied, hashed or written for the other members; a second Ctrl-C ends this client at once",
			"bytes", said.Bytes, "for", said.For, "limit", said.Limit)
	case core.TooLong:
		r.log.Info("not measuring the held-out loss: it takes too long; members would wait", "seconds", said.Expected.Seconds(), "limit", said.Limit.Seconds())
	case core.StopsMeasuring:
		r.log.Info("not measuring the held-out loss: the run does not wait for it", "step", said.Step)
	case core.HeldOutLoss:
		r.heldOut(said)
	case core.ReportedTaken:
		r.log.Debug("reported an intermediate checkpoint", "step", said.Step, "digest", hexOf(said.Digest)[:16])
	case core.CannotApply:
		r.log.Error("cannot apply results", "step", said.Step, "err", said.Err)
	case core.ContinuesWithout:
		r.log.Warn("continuing without results that only a few witnesses claim to hold", "step", said.Step, "results", said.Results)
	case core.Witnessed:
		r.log.Debug("witnessed", "step", said.Step, "held", said.Held, "batches", said.Batches)
		r.emit(event.WitnessSent{Step: said.Step, Held: said.Held, Batches: said.Batches})
	case core.Offered:
		r.log.Info("offered the speed of training for the next shares", "step", said.Step, "tokens_per_second", math.Round(math.Exp2((float64(said.Level)+0.5)/8)))
	case core.Accused:
		e := event.HealthCheckSent{Step: said.Step}
		for _, id := range said.Members {
			e.Clients = append(e.Clients, identity.ID(id).String())
		}
		r.log.Info("reported members without results", "step", said.Step, "clients", e.Clients)
		r.emit(e)
	case core.AsksForFinal:
		r.log.Info("this run is over; asking its members for the final model; Ctrl-C ends the wait", "limit", said.Limit)
	case core.DiskSlow:
		r.log.Warn("the run is finished, but its last checkpoint is not on the disk yet; if the disk does not respond, Ctrl-C ends this client without the checkpoint",
			"dir", r.dir, "unsaved_steps", said.Unwritten)
	case core.DiskFull:
		r.log.Warn("the run is finished, but its last checkpoint is not saved; remove other files from that disk now, or the client ends without the checkpoint",
			"dir", r.dir, "limit", said.Limit, "err", said.Err)
	case core.Lingers:
		r.log.Info("waiting for members that missed the end of the run and may need the final model; Ctrl-C ends the wait",
			"members", said.Members, "waiting_clients", said.Waiting, "limit", said.Limit)
	}
}

// heldOut reports the loss of a model on held-out data.
func (r *reporter) heldOut(said core.HeldOutLoss) {
	if said.Err != nil {
		r.log.Warn("cannot measure the held-out loss", "step", said.Step, "err", said.Err)
		return
	}
	r.log.Info("measured the held-out loss", "step", said.Step, "loss", said.Loss, "sequences", said.Sequences)
	r.emit(event.EvaluatedLoss(said.Step, said.Loss, said.Sequences, said.Took))
}

func awaitsHolder(a core.AwaitsHolder) string {
	message := fmt.Sprintf("the newest model that the run recorded is of step %d; no connected member has it, and --checkpoint-dir has only step %d; this client waits for a member with the newer model, ", a.Newest, a.Older)
	if a.Usable {
		return message + fmt.Sprintf("at most %s more (not at all with --accept-loss); then it joins, and if the run's own wait for the model ends too, the run continues without steps %d to %d", a.Left.Round(time.Second), a.Older+1, a.Newest)
	}
	return message + "because the run would otherwise restart from its initial model; if no member has the newer model, start this client with --accept-loss"
}

// Held implements fetch.Owner. It reports a held result as rejected if it was made from another replica
// of the model.
func (r *reporter) Held(t *tally.Tally, s *tally.Slot, c *tally.Candidate) {
	if t.Began && c.State == tally.Held && c.Replica != t.Replica {
		r.Rejected(t, s, "made from a different replica of the model")
	}
}

// Rejected implements fetch.Owner. It reports a result that this client does not count.
func (r *reporter) Rejected(t *tally.Tally, s *tally.Slot, reason string) {
	from := identity.ID(s.Owner)
	r.log.Warn("result rejected", "step", t.Round.Step, "batch", s.Batch, "from", from.Short(), "reason", reason)
	r.emit(event.Rejected{Step: t.Round.Step, Batch: batchOf(s.Batch), From: from.String(), Reason: reason})
}

// equivocation reports a trainer that signed two results.
func (r *reporter) equivocation(t *tally.Tally, author identity.ID, a wire.ResultAnnouncement) {
	r.log.Warn("a trainer signed two results", "step", a.Step, "batch", a.Batch, "from", author.Short())
	e := event.Equivocation{Step: a.Step, Batch: batchOf(a.Batch), From: author.String()}
	for _, c := range t.Find(a.Batch).Candidates {
		e.Commitments = append(e.Commitments, hexOf(c.Commitment))
	}
	r.emit(e)
}

// held reports that every result of the running round that can be expected is held.
func (r *reporter) held(t *tally.Tally) {
	e := event.ResultsHeld{Step: t.Round.Step, Batches: len(t.Slots)}
	for i := range t.Slots {
		if t.HeldOf(&t.Slots[i]) != nil {
			e.Held++
		}
	}
	if newest := t.Newest(); newest != nil {
		e.FetchSeconds = newest.Took.Seconds()
	}
	r.emit(e)
}

// hexOf returns a hash in the form used in events and messages.
func hexOf(hash [32]byte) string { return hex.EncodeToString(hash[:]) }

func batchOf(b assign.BatchID) event.Batch { return event.Batch{b.Start, b.End} }

// waitingText describes what this client waits for.
func waitingText(w core.Waiting) string {
	switch w.Reason {
	case core.ForMembers:
		return "waiting for members"
	case core.ForHolder:
		return fmt.Sprintf("waiting for a former member: no connected client has the run's model of step %d, and newcomers cannot continue without it", w.Model)
	case core.ForModel:
		return fmt.Sprintf("waiting for a client that has the run's model of step %d, until %s; then the run continues from an older model, unless a newcomer has the newer one", w.Model, time.UnixMilli(int64(w.Until)).UTC().Format(time.DateTime+" MST"))
	case core.ForResume:
		return "waiting: the run is paused"
	}
	if w.Until != 0 {
		return fmt.Sprintf("waiting for the next epoch, which begins soon after %s", time.UnixMilli(int64(w.Until)).UTC().Format(time.TimeOnly+" MST"))
	}
	return "waiting for the next epoch"
}

// loss describes what is lost if this client was the last one in the run with its model; empty:
// nothing. newest is the model's newest step, and saved the newest step in a checkpoint.
func (v *view) loss(newest, saved uint32) string {
	s := v.state
	if s == nil || s.RunState == coordinator.Finished || !v.hasSeat() || v.othersHold() {
		return ""
	}
	if c := s.Model.Checkpoint; c.FromPeers() && len(s.UploadsOf(c.Digest)) > 0 {
		saved = max(saved, c.Step)
	}
	switch {
	case newest <= saved:
		return ""
	case saved == 0:
		return fmt.Sprintf("this was the last member, and it saved no checkpoint: steps 1 to %d are lost, unless a former member saved a checkpoint", newest)
	}
	return fmt.Sprintf("this was the last member: its newest checkpoint is of step %d, and no checkpoint contains steps %d to %d", saved, saved+1, newest)
}

// claimOf returns the claim about loss and speed that this client sends with its witness proof, after
// it has trained a batch. It does not claim a loss that is missing or not a number.
func claimOf(t event.Trained) coordinator.Claim {
	return coordinator.Claim{
		Loss:  claimedLoss(float64(t.Loss)),
		Speed: uint32(bounded(float64(t.Tokens)/t.Seconds, math.MaxUint32)),
	}
}

// claimedLoss returns a loss in the units of a claim, or 0 if it is not a positive number.
func claimedLoss(loss float64) uint16 {
	return uint16(bounded(loss*coordinator.LossUnit, math.MaxUint16))
}

// bounded rounds v to an integer from 1 to limit, for a claim. If v is not a positive number, it
// returns 0, which means no claim.
func bounded(v, limit float64) float64 {
	if !(v > 0) || math.IsInf(v, 0) {
		return 0
	}
	return min(max(1, math.Round(v)), limit)
}
