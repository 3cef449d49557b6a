package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/client/books"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/client/fetch"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

const maxDataTries = 8 // to read the tokens of one batch

// roundTrain trains the own batch of the running round, once everything before it is
// applied.
func (n *Node) roundTrain() {
	n.engine.cancelTraining(n.run.state.Progress.Step)
	l := n.keepUp()
	if l == nil {
		return
	}
	n.train(l)
	n.sendWitness(l, false)
	n.accuse()
}

// keepUp brings the replica to the start of the running round and returns its books, or
// nil while that takes time or when the client has no part in it.
func (n *Node) keepUp() *ledger {
	if !n.closeEpoch() {
		return nil
	}
	if !n.run.isMember() {
		if n.replica != nil {
			n.desynchronise("dropped from the epoch")
		}
		return nil
	}
	if !n.enterEpoch() {
		return nil
	}
	round := n.run.state.CurrentRound()
	if _, takesPart := round.MemberIndex(n.run.myself()); !takesPart {
		return nil
	}
	l := n.rounds.of[round.Step]
	n.loadTokens(l)
	if lag := n.engine.lag(); round.Step > lag && !n.settle(round.Step-lag) {
		return nil
	}
	if !l.Began {
		n.begin(l)
	}
	if replica, agreed := l.Round.QuorumReplica(); agreed && replica != l.Replica {
		n.desynchronise("the witnesses of the running round hold another model")
		return nil
	}
	return l
}

// loadTokens reads the tokens of the own batch while the previous round is applied.
func (n *Node) loadTokens(l *ledger) {
	s := l.Own(n.run.me)
	if s == nil || l.tokens != nil || l.loading || l.loadTries >= maxDataTries ||
		n.run.state.RunState != coordinator.RoundTrain || n.tasks.Now().Before(l.loadAt) {
		return
	}
	l.loading = true
	timeout := n.run.settleTime(n.SettleTimeout)
	n.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := n.tasks.WithTimeout(ctx, timeout)
		defer cancel()
		tokens, err := n.Data.Batch(ctx, s.Batch)
		if err == nil && uint64(len(tokens.Sequences)) != s.Batch.Len() {
			err = fmt.Errorf("got %d sequences of %d", len(tokens.Sequences), s.Batch.Len())
		}
		return func() {
			l.loading = false
			if err == nil {
				l.tokens = &tokens
				return
			}
			if data.IsPermanent(err) {
				n.fail(fmt.Errorf("read training data: %w", err))
				return
			}
			l.loadTries++
			l.loadAt = n.tasks.Now().Add(fetch.Backoff(l.loadTries))
			n.report.log.Error("read training data", "step", l.Round.Step, "batch", s.Batch, "attempt", l.loadTries, "err", err)
		}
	})
}

// train computes the own result when it can.
func (n *Node) train(l *ledger) {
	s := l.Own(n.run.me)
	if s == nil || l.tokens == nil || l.trained || !n.engine.idle() {
		return
	}
	l.trained = true
	trainer, step, batch := n.engine.trainer, l.Round.Step, *l.tokens
	n.engine.start(opTrain, step, func(ctx context.Context) func() {
		begun := n.tasks.Now()
		payload, loss, err := trainer.Train(ctx, step, batch)
		if err == nil {
			err = checkOwn(trainer, n.run.me, payload, step, batch.ID)
		}
		report := event.Trained{
			Step: step, Batch: batchOf(batch.ID), Loss: event.Loss(loss),
			Tokens: tokensOf(batch), Seconds: n.tasks.Now().Sub(begun).Seconds(),
		}
		cancelled := ctx.Err() != nil
		return func() {
			switch {
			case err == nil:
				n.trained(l, s, payload, report)
			case cancelled:
				n.report.log.Info("training stopped: the round is over", "step", step)
			default:
				n.report.log.Error("train", "step", step, "batch", batch.ID, "err", err)
			}
		}
	})
}

// checkOwn refuses to announce what no peer would accept.
func checkOwn(trainer env.Trainer, id identity.ID, payload []byte, step uint32, batch assign.BatchID) error {
	if limit := trainer.MaxResultSize(); len(payload) == 0 || len(payload) > limit {
		return fmt.Errorf("own result has %d bytes, want 1 to %d", len(payload), limit)
	}
	if err := trainer.Verify(payload, step, batch, id); err != nil {
		return fmt.Errorf("own result is invalid: %w", err)
	}
	return nil
}

// trained announces the own result unless the round is over.
func (n *Node) trained(l *ledger, s *books.Slot, payload []byte, report event.Trained) {
	step := l.Round.Step
	n.report.log.Info("trained", "step", step, "batch", s.Batch, "loss", float64(report.Loss), "seconds", report.Seconds)
	n.report.emit(report)
	if n.replica == nil || n.rounds.of[step] != l || !l.Began || n.run.state.RunState != coordinator.RoundTrain || n.run.state.Progress.Step != step {
		n.report.log.Info("result comes too late", "step", step)
		return
	}
	hash, err := n.Network.Put(payload)
	if err != nil {
		n.report.log.Error("share own result", "step", step, "err", err)
		return
	}
	a := wire.ResultAnnouncement{
		RunID: n.RunID, Step: step, Batch: s.Batch, Blob: hash,
		Size: uint32(len(payload)), Replica: l.Replica,
	}
	raw := n.Announcements.Sign(a)
	if err := l.Hear(n.run.me, a, raw); err != nil {
		n.report.log.Error("enter own result", "step", step, "err", err)
		return
	}
	own := s.Candidates[len(s.Candidates)-1]
	own.Payload = payload
	l.Hold(s, own, uint32(len(payload)))
	l.commitment, l.raw = hash, raw
	n.report.total.PayloadSent += uint64(len(payload))
	n.ears.publish(raw)
	n.report.emit(event.ResultSent{Step: step, Batch: batchOf(s.Batch), Bytes: len(payload), Commitment: hexOf(hash)})
}

// accuse reports members whose results the witnesses of the previous round do not hold,
// when this client was one of these witnesses. Others do the same: it is enough that
// one is heard.
func (n *Node) accuse() {
	previous := n.rounds.of[n.run.state.Progress.Step-1]
	if previous == nil || !previous.elected || previous.accusedIn == n.run.state {
		return
	}
	previous.accusedIn = n.run.state
	if !previous.judged { // its witnesses are all there: only fewer can be healthy later
		previous.judged, previous.suspects = true, n.run.state.Accusable()
	}
	accused := slices.DeleteFunc(slices.Clone(previous.suspects), func(id coordinator.ClientID) bool {
		return id == n.run.myself() || !n.run.healthy(id)
	})
	if len(accused) == 0 {
		return
	}
	step := previous.Round.Step
	n.errands.submit("health check", step, coordinator.HealthCheck{Step: step, Clients: accused}, func() {
		e := event.HealthCheckSent{Step: step}
		for _, id := range accused {
			e.Clients = append(e.Clients, identity.ID(id).String())
		}
		n.report.log.Info("reported members without results", "step", step, "clients", e.Clients)
		n.report.emit(e)
	})
}

// tokensOf counts the tokens that a batch predicts.
func tokensOf(batch data.Batch) int {
	tokens := 0
	for _, sequence := range batch.Sequences {
		tokens += max(len(sequence)-1, 0)
	}
	return tokens
}
