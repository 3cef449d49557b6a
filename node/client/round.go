package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
)

// roundTrain trains this client's batch of the running round, once all previous rounds are applied.
func (n *Node) roundTrain() {
	step := n.run.state.Progress.Step
	n.step(core.InRound{})
	n.step(n.rounds.of[step].offering(n.engine.underway(), n.run.myself()))
	rs := n.keepUp()
	if rs == nil || n.member.Leave.Begun() {
		return
	}
	if n.auditor.Judges() {
		n.auditor.Preempt(n.step(core.Urgent{
			Part: &rs.Part, Own: rs.Own(n.run.me) != nil, Lag: n.engine.Lag(), Leeway: n.rounds.leeway(rs.Round.Step), Next: n.nextBatch,
		}).Preempt)
	}
	n.train(rs)
	n.takeOwed()
	n.trainAhead(rs)
	n.sendWitness(rs, false)
	n.step(core.Accuse{Previous: n.rounds.of[n.run.state.Progress.Step-1].part()})
}

// keepUp brings the replica to the start of the running round, and returns the state of the round. It
// returns nil while that is in progress, or if the client is not in the round.
func (n *Node) keepUp() *roundState {
	if !n.closeEpoch() {
		return nil
	}
	if n.rounds.replica == nil {
		n.rejoin()
	}
	if n.step(core.SitDown{Replica: n.rounds.replica}); n.rounds.replica == nil {
		return nil
	}
	round := n.run.state.CurrentRound()
	if _, takesPart := round.MemberIndex(n.run.myself()); !takesPart || !n.run.isMember() {
		if lag := n.engine.Lag(); round.Step > lag { // the next batch may be this client's
			n.finalize(round.Step - lag)
		}
		return nil
	}
	rs := n.rounds.of[round.Step]
	if own := rs.Own(n.run.me); own != nil && n.run.state.RunState == coordinator.RoundTrain && !rs.Trained {
		n.engine.reader.forget(func(of assign.BatchID) bool { return of == own.Batch }) // the predicted batch was wrong if members came or went
		n.engine.reader.read(&rs.Round, own.Batch, n.run.CompletionTime())              // while the previous rounds are being applied
	}
	if lag := n.engine.Lag(); round.Step > lag && !n.finalize(round.Step-lag) {
		return nil
	}
	if !rs.Began {
		rs.begin(n.rounds.replica, n.engine.Lag(), n.report)
	}
	return rs
}

// train computes this client's result when possible, or lets a training that started before the
// round continue.
func (n *Node) train(rs *roundState) {
	ready := n.step(core.Turn{
		Part: &rs.Part, Own: rs.ownBatch(n.run.me), After: n.rounds.replica.IsAfter(rs.Round.Step, n.engine.Lag()),
		MaySign: n.engine.signing.May(rs.Round.Step),
	})
	if !ready.Ask || !n.auditor.MayTrain(rs.Round.Step) {
		return
	}
	if ready = n.step(core.Permitted{}); ready.Begin {
		n.engine.begun()
	}
	if ready.Read == nil {
		return
	}
	tokens := n.engine.reader.read(&rs.Round, *ready.Read, n.run.CompletionTime())
	if next, trains := n.step(core.Tokens{Read: tokens != nil}).Next.(core.Train); trains {
		n.startTraining(next, *tokens, func(context.Context) error { return nil })
	}
}

// trainAhead starts to train for the next round before that round starts.
func (n *Node) trainAhead(rs *roundState) {
	speculation, outcome := n.speculation(rs)
	ready := n.step(core.Ahead{
		Part: &rs.Part, Own: rs.ownBatch(n.run.me), Replica: n.rounds.replica, Lag: n.engine.Lag(),
		Next: n.nextBatch, Speculation: speculation,
	})
	if ready.Forget {
		n.engine.reader.forget(func(of assign.BatchID) bool { return slices.Contains(ready.Keep, of) })
	}
	if ready.CancelAhead {
		n.engine.Cancel()
	}
	if ready.Read == nil {
		return
	}
	next := n.run.predict(n.Draws)
	tokens := n.engine.reader.read(&next.round, *ready.Read, n.run.CompletionTime())
	if ready = n.step(core.Tokens{Read: tokens != nil}); ready.Ask && n.auditor.MayBegin() {
		ready = n.step(core.Permitted{})
	}
	switch next := ready.Next.(type) {
	case core.Apply:
		n.finalizeEarly(next.Step)
	case core.Speculate:
		n.speculate(rs, *outcome)
	case core.Train:
		wait, begun := n.tasks.Signal()
		n.engine.begun = begun
		n.startTraining(next, *tokens, wait)
	}
}

// training is the result of a training.
type training struct {
	batch     assign.BatchID
	payload   []byte
	report    event.Trained
	permit    core.Permit // to sign the result
	err       error
	cancelled bool
	measured  core.Measured
}

// startTraining trains a batch. begun returns when the round has started. Work that depends on the
// round's seed waits for it.
func (n *Node) startTraining(w core.Train, batch data.Batch, begun func(context.Context) error) {
	trainer, own, step := n.engine.trainer, n.auditor.Chain(), w.Step
	progress := &progress{Underway: core.Underway{Step: step, Tokens: tokensOf(batch)}, started: n.tasks.Now()}
	n.engine.progress = progress
	start(&n.engine, w, func(ctx context.Context) training {
		var waited time.Duration
		t := training{batch: batch.ID}
		var loss float64
		t.payload, loss, t.err = trainer.Train(ctx, step, batch, func(ctx context.Context) error {
			since := n.tasks.Now()
			progress.done.Store(true)
			err := begun(ctx)
			waited = n.tasks.Now().Sub(since)
			if err == nil && own != nil {
				err = own.Finish()
			}
			return err
		})
		complete, begun := progressOf(trainer)
		if t.err == nil && own != nil {
			t.err = own.Made(t.payload, batch.Receipt)
		}
		if t.err == nil {
			t.err = checkOwn(trainer, n.run.me, t.payload, step, batch.ID)
		}
		if t.err == nil {
			t.err = n.tasks.AtDisk(func() (err error) {
				t.permit, err = n.engine.signing.record(step)
				return err
			})
		}
		took := n.tasks.Now().Sub(progress.started) - waited
		t.report = event.Trained{
			Step: step, Batch: batchOf(batch.ID), Loss: event.Loss(loss),
			Tokens: progress.Tokens, Seconds: took.Seconds(),
		}
		t.measured = core.Measured{Underway: core.Underway{Step: step, Tokens: progress.Tokens, Took: took, Complete: complete, Begun: begun}, Result: t.err == nil}
		t.cancelled = ctx.Err() != nil
		return t
	}, func(t training) {
		if n.trained(t) {
			n.announce(t)
		}
	}, func(t training) { n.trained(t) })
}

// checkOwn returns an error for a result that no peer would accept.
func checkOwn(trainer env.Trainer, id identity.ID, payload []byte, step uint32, batch assign.BatchID) error {
	if limit := trainer.MaxResultSize(); len(payload) == 0 || len(payload) > limit {
		return fmt.Errorf("own result has %d bytes, want 1 to %d", len(payload), limit)
	}
	if err := trainer.Verify(payload, step, batch, id); err != nil {
		return fmt.Errorf("own result is invalid: %w", err)
	}
	return nil
}

// trained reports a training, and whether it has a result.
func (n *Node) trained(t training) bool {
	step := t.report.Step
	n.step(t.measured)
	switch {
	case t.err != nil && t.cancelled:
		n.report.log.Info("training stopped: the round is over, or differs from the expected one", "step", step)
		return false
	case t.err != nil:
		n.report.log.Error("train", "step", step, "batch", t.batch, "err", t.err)
		return false
	}
	if rs := n.rounds.of[step]; rs != nil {
		rs.claim = claimOf(t.report)
	}
	n.report.log.Debug("trained", "step", step, "batch", t.batch, "loss", float64(t.report.Loss), "seconds", t.report.Seconds)
	n.report.emit(t.report)
	n.engine.outlook.Trains = time.Duration(t.report.Seconds * float64(time.Second))
	return true
}

// announce signs and announces this client's result, unless the round is over.
func (n *Node) announce(t training) {
	step, rs := t.report.Step, n.rounds.of[t.report.Step]
	if rs == nil || !rs.Began || n.run.state.RunState != coordinator.RoundTrain || n.run.state.Progress.Step != step {
		n.report.log.Info("the result is too late; discarding it", "step", step)
		return
	}
	s := rs.Find(t.batch)
	if s == nil || s.Owner != n.run.myself() {
		n.report.log.Info("the batch now belongs to another member; discarding the result", "step", step, "batch", t.batch)
		return
	}
	a := wire.ResultAnnouncement{
		Run: n.run.hash, Step: step, Batch: s.Batch, Size: uint32(len(t.payload)), Replica: rs.Replica, Start: rs.start,
	}
	err := n.engine.signing.Publish(t.permit, func() (raw []byte, err error) {
		if a.Blob, err = n.Network.Put(t.payload); err != nil {
			return nil, err
		}
		return n.Announcements.Sign(a), nil
	}, func(raw []byte) error {
		if err := rs.Receive(n.run.me, a, raw); err != nil {
			return err
		}
		own := s.Candidates[len(s.Candidates)-1]
		own.Payload = t.payload
		rs.Hold(s, own, a.Size)
		rs.commitment, rs.raw, rs.made = a.Blob, raw, n.tasks.Now()
		n.report.total.PayloadSent += uint64(a.Size)
		round := max(rs.made.Sub(rs.Opened), n.engine.outlook.Trains) // without the exchange of results
		n.gossip.share(raw, t.payload, n.run.Members(), round, func() { rs.shared = n.tasks.Now() })
		n.report.emit(event.ResultSent{Step: step, Batch: batchOf(s.Batch), Bytes: len(t.payload), Commitment: hexOf(a.Blob)})
		return nil
	})
	switch {
	case errors.Is(err, core.ErrSigned):
		n.report.log.Info("discarding the new result", "step", step, "err", err)
	case err != nil:
		n.report.log.Error("cannot publish own result", "step", step, "err", err)
	}
}

// nextBatch predicts this client's batch of the next round.
func (n *Node) nextBatch() core.Prediction { return n.run.predict(n.Draws).Prediction }

// roundWitness sends the proof for the round that has just ended.
func (n *Node) roundWitness() {
	n.step(core.InRound{})
	n.step(core.Offering{})
	if rs := n.keepUp(); rs != nil && !n.member.Leave.Begun() {
		n.sendWitness(rs, true)
		n.takeOwed()
		n.trainAhead(rs)
	}
}

// sendWitness sends the proof of an elected witness, during the round or at its end (over).
func (n *Node) sendWitness(rs *roundState, over bool) {
	ready := n.step(core.Attest{Part: &rs.Part, Round: &rs.Round, Results: awaited{rs.Tally, &n.run}, Over: over, Judges: n.auditor.Judges()})
	if ready.HeldAll {
		n.report.held(rs.Tally)
	}
	if ready.Prove {
		proof, held := rs.Witness()
		proof.Claim = rs.claim
		n.step(core.Proof{WitnessRound: proof, Held: held, Batches: len(rs.Slots)})
	}
}
