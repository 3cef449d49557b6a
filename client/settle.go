package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/client/books"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/client/exchange"
	"github.com/psyche-go/psyche/client/fetch"
	"github.com/psyche-go/psyche/coordinator"
)

const maxApplyFailures = 3 // in a row, before the client gives up

// settle applies the results of finished rounds up to a step and reports whether all are
// applied. What it lacks it asks peers for; when that fails in time, or when it missed
// too much, the client is desynchronised.
func (n *Node) settle(want uint32) bool {
	if n.replica.step >= want {
		return true
	}
	if !n.engine.idle() {
		n.engine.cancelTraining(0)
		return false
	}
	step := n.replica.step + 1
	l := n.rounds.of[step]
	if l == nil || !l.Final || l.EpochStart != n.replica.epoch.startStep {
		n.desynchronise(fmt.Sprintf("the outcome of step %d was missed", step))
		return false
	}
	if !l.Began {
		n.begin(l)
	}
	if replica, agreed := l.Round.QuorumReplica(); agreed && replica != l.Replica {
		n.desynchronise(fmt.Sprintf("the witnesses of step %d hold another model", step))
		return false
	}
	now := n.tasks.Now()
	late := !l.LackingSince.IsZero() && now.Sub(l.LackingSince) > n.settleTimeout()
	outcome := l.Judge(now, late)
	if outcome.Missing == 0 {
		n.apply(l, outcome)
		return false
	}
	if l.LackingSince.IsZero() {
		l.LackingSince = now
	}
	if late {
		if outcome.NoRoom { // joining again would end the same way
			n.fail(fmt.Errorf("get the results of step %d from peers: %w", step, env.ErrNoRoom))
			return false
		}
		n.desynchronise(fmt.Sprintf("%d results of step %d cannot be had from peers", outcome.Missing, step))
		return false
	}
	n.askFor(l, outcome.Informed)
	return false
}

// settleTimeout is how long a finished round may take to complete.
func (n *Node) settleTimeout() time.Duration {
	if n.SettleTimeout > 0 {
		return n.SettleTimeout
	}
	return max(time.Duration(n.run.state.Config.MaxRoundTrainTime)*time.Second, requestTimeout)
}

// roundTime is how long a round may run.
func roundTime(c coordinator.Config) time.Duration {
	return time.Duration(c.MaxRoundTrainTime+c.RoundWitnessTime) * time.Second
}

// apply makes a round's outcome part of the model.
func (n *Node) apply(l *ledger, o books.Outcome) {
	own := l.commitment != (books.Commitment{}) && slices.ContainsFunc(o.Counted, func(c books.Counted) bool { return c.Commitment == l.commitment })
	replica, trainer, step := n.replica, n.engine.trainer, l.Round.Step
	n.models.Held = nil
	n.engine.start(opApply, step, func(ctx context.Context) func() {
		begun := n.tasks.Now()
		payloads, unread, err := fetch.Read(ctx, n.Network, o.Sources)
		if err == nil {
			err = trainer.Apply(ctx, step, payloads, own)
		}
		seconds := n.tasks.Now().Sub(begun).Seconds()
		return func() {
			switch {
			case n.replica != replica:
			case len(unread) > 0:
				n.unread(l, unread, err)
			case err != nil:
				n.applyFailed(step, err)
			default:
				n.engine.failures = 0
				n.fetcher.StopRound(l.Book) // nobody needs the others here any more
				replica.before, replica.hash = replica.hash, books.ExtendReplica(replica.hash, step, o.Counted)
				replica.step = step
				n.remember(l, o, payloads)
				n.blobs.Drop(l.Settled(o)...)
				n.report.applied(step, o, own, replica.hash, seconds, n.fetcher.Received)
			}
		}
	})
}

// remember keeps a round for members that are away. Its results are shared already.
func (n *Node) remember(l *ledger, o books.Outcome, payloads [][]byte) {
	round := exchange.AppliedRound{Step: l.Round.Step, EpochStart: l.EpochStart, ColdSteps: n.replica.coldSteps, From: n.replica.from}
	for i, c := range o.Counted {
		round.Results = append(round.Results, exchange.AppliedResult{Counted: c, Owner: l.Find(c.Batch).Owner, Size: uint32(len(payloads[i]))})
	}
	n.blobs.Drop(n.past.Push(round)...)
}

// unread has results fetched again that were lost from the blob store. A store whose disk
// is full, or whose folder is gone, keeps nothing: from now on what it does not have after
// a fetch stays in memory.
func (n *Node) unread(l *ledger, lost []*books.Candidate, err error) {
	n.log.Warn("results are fetched again, as the store for shared data has lost them: is its disk full?",
		"step", l.Round.Step, "results", len(lost), "err", err)
	n.fetcher.StoreLoses()
	now := n.tasks.Now()
	l.Lost(lost, func(c *books.Candidate) time.Time { return now.Add(fetch.Backoff(c.Attempts)) })
}

// applyFailed handles a model of which nobody knows what it is.
func (n *Node) applyFailed(step uint32, err error) {
	n.engine.failures++
	n.log.Error("apply results", "step", step, "err", err)
	if n.engine.failures >= maxApplyFailures {
		n.fail(fmt.Errorf("apply results of step %d: %w", step, err))
		return
	}
	n.desynchronise("applying results failed: " + err.Error())
}
