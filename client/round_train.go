package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

const (
	opTrain = "train"

	maxDataTries = 8 // to read the tokens of one batch
)

// roundTrain trains the own batch of the running round, once everything before it is
// applied.
func (n *Node) roundTrain() {
	n.cancelTraining(n.state.Progress.Step)
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
	if !n.isMember() {
		if n.replica != nil {
			n.desynchronise("dropped from the epoch")
		}
		return nil
	}
	if !n.enterEpoch() {
		return nil
	}
	round := n.state.CurrentRound()
	if _, takesPart := round.MemberIndex(coordinator.ClientID(n.id)); !takesPart {
		return nil
	}
	l := n.rounds[round.Step]
	n.loadTokens(l)
	if lag := n.trainer.ApplyLag(); round.Step > lag && !n.settle(round.Step-lag) {
		return nil
	}
	if !l.began {
		n.begin(l)
	}
	if replica, agreed := l.round.QuorumReplica(); agreed && replica != l.replica {
		n.desynchronise("the witnesses of the running round hold another model")
		return nil
	}
	return l
}

// loadTokens reads the tokens of the own batch while the previous round is applied.
func (n *Node) loadTokens(l *ledger) {
	s := l.own(n.id)
	if s == nil || l.tokens != nil || l.loading || l.loadTries >= maxDataTries ||
		n.state.RunState != coordinator.RoundTrain || n.Runtime.Now().Before(l.loadAt) {
		return
	}
	l.loading = true
	timeout := n.settleTimeout()
	n.spawn(func(ctx context.Context) func() {
		ctx, cancel := n.Runtime.WithTimeout(ctx, timeout)
		defer cancel()
		tokens, err := n.Data.Batch(ctx, s.batch)
		if err == nil && uint64(len(tokens.Sequences)) != s.batch.Len() {
			err = fmt.Errorf("got %d sequences of %d", len(tokens.Sequences), s.batch.Len())
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
			l.loadAt = n.Runtime.Now().Add(min(fetchPause<<l.loadTries, maxPause))
			n.log.Error("read training data", "step", l.round.Step, "batch", s.batch, "attempt", l.loadTries, "err", err)
		}
	})
}

// train computes the own result when it can.
func (n *Node) train(l *ledger) {
	s := l.own(n.id)
	if s == nil || l.tokens == nil || l.trained || n.op != nil {
		return
	}
	l.trained = true
	trainer, step, batch := n.trainer, l.round.Step, *l.tokens
	n.start(opTrain, step, func(ctx context.Context) func() {
		begun := n.Runtime.Now()
		payload, loss, err := trainer.Train(ctx, step, batch)
		if err == nil {
			err = checkOwn(trainer, n.id, payload, step, batch.ID)
		}
		report := event.Trained{
			Step: step, Batch: batchOf(batch.ID), Loss: event.Loss(loss),
			Tokens: tokensOf(batch), Seconds: n.Runtime.Now().Sub(begun).Seconds(),
		}
		cancelled := ctx.Err() != nil
		return func() {
			switch {
			case err == nil:
				n.trained(l, s, payload, report)
			case cancelled:
				n.log.Info("training stopped: the round is over", "step", step)
			default:
				n.log.Error("train", "step", step, "batch", batch.ID, "err", err)
			}
		}
	})
}

// checkOwn refuses to announce what no peer would accept.
func checkOwn(trainer Trainer, id identity.ID, payload []byte, step uint32, batch assign.BatchID) error {
	if limit := trainer.MaxResultSize(); len(payload) == 0 || len(payload) > limit {
		return fmt.Errorf("own result has %d bytes, want 1 to %d", len(payload), limit)
	}
	if err := trainer.Verify(payload, step, batch, id); err != nil {
		return fmt.Errorf("own result is invalid: %w", err)
	}
	return nil
}

// trained announces the own result unless the round is over.
func (n *Node) trained(l *ledger, s *slot, payload []byte, report event.Trained) {
	step := l.round.Step
	n.log.Info("trained", "step", step, "batch", s.batch, "loss", float64(report.Loss), "seconds", report.Seconds)
	n.emit(report)
	if n.replica == nil || n.rounds[step] != l || !l.began || n.state.RunState != coordinator.RoundTrain || n.state.Progress.Step != step {
		n.log.Info("result comes too late", "step", step)
		return
	}
	hash, err := n.Network.Put(payload)
	if err != nil {
		n.log.Error("share own result", "step", step, "err", err)
		return
	}
	a := wire.ResultAnnouncement{
		RunID: n.RunID, Step: step, Batch: s.batch, Blob: hash,
		Size: uint32(len(payload)), Replica: l.replica,
	}
	raw := n.Announcements.Sign(a)
	if err := l.hear(n.id, a, raw); err != nil {
		n.log.Error("enter own result", "step", step, "err", err)
		return
	}
	own := s.candidates[len(s.candidates)-1]
	own.state, own.payload = held, payload
	l.changes++
	l.commitment, l.raw = hash, raw
	l.unshelved = true
	n.total.PayloadSent += uint64(len(payload))
	n.publish(raw)
	n.emit(event.ResultSent{Step: step, Batch: batchOf(s.batch), Bytes: len(payload), Commitment: hexOf(hash)})
}

// accuse reports members whose results the witnesses of the previous round do not hold,
// when this client was one of these witnesses. Others do the same: it is enough that
// one is heard.
func (n *Node) accuse() {
	previous := n.rounds[n.state.Progress.Step-1]
	if previous == nil || !previous.elected || n.accusedIn == n.state {
		return
	}
	n.accusedIn = n.state
	if !previous.judged { // its witnesses are all there: only fewer can be healthy later
		previous.judged, previous.suspects = true, n.state.Accusable()
	}
	accused := slices.DeleteFunc(slices.Clone(previous.suspects), func(id coordinator.ClientID) bool {
		return id == coordinator.ClientID(n.id) || !n.healthy(id)
	})
	if len(accused) == 0 {
		return
	}
	step := previous.round.Step
	n.submit("health check", step, coordinator.HealthCheck{Step: step, Clients: accused}, func() {
		e := event.HealthCheckSent{Step: step}
		for _, id := range accused {
			e.Clients = append(e.Clients, identity.ID(id).String())
		}
		n.log.Info("reported members without results", "step", step, "clients", e.Clients)
		n.emit(e)
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
