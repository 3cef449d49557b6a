package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/models"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// openRounds updates the rounds from the newest state.
func (n *Node) openRounds() {
	rounds := n.run.state.Epoch.Rounds
	if len(rounds) == 0 {
		return
	}
	running := n.run.state.RunState == coordinator.RoundTrain || n.run.state.RunState == coordinator.RoundWitness
	newest := rounds[len(rounds)-1].Step
	kept := 2 + n.engine.Lag() // the running round, the unapplied rounds before it, and one more for late peers
	var closed []*roundState
	for i, round := range rounds {
		rs := n.rounds.of[round.Step]
		if rs != nil && rs.Round.Seed != round.Seed { // the host lost its state
			delete(n.rounds.of, round.Step)
			closed, rs = append(closed, rs), nil
		}
		if rs == nil {
			if round.Step+kept <= newest {
				continue
			}
			rs = newRoundState(round, &n.run, n.Draws, n.tasks.Now())
			before := n.rounds.of[round.Step-1]
			rs.past = !running || i < len(rounds)-1
			if rs.past || round.Step > rs.EpochStart && (before == nil || before.past) {
				rs.Join()
			}
			if before != nil && before.EpochStart == rs.EpochStart {
				rs.Follow(&before.Part)
				if n.engine.Lag() > 1 {
					rs.Ahead(&before.Part, before.trainers(), rs.trainers())
				}
			}
			if before != nil && !before.Whole.IsZero() {
				n.engine.outlook.Wait = rs.Opened.Sub(before.Whole)
			}
			n.rounds.of[round.Step] = rs
		}
		if rs.start == (wire.Head{}) && !rs.Began {
			rs.start = n.run.startOf(round.Step)
		}
		rs.Renew(round, !running || i < len(rounds)-1)
	}
	for _, step := range n.rounds.steps() {
		behind := n.rounds.replica != nil && step > n.rounds.replica.Step && step+coordinator.StoredRounds > newest
		ahead := step > newest // the host went back: these rounds are not the run's
		if ahead || step+kept <= newest && !behind {
			closed = append(closed, n.rounds.of[step])
			delete(n.rounds.of, step)
		}
	}
	for _, rs := range closed {
		n.fetcher.StopRound(rs.Tally)
		n.store.Cache.DropRound(rs.Round.Step)
		n.store.Drop(rs.Blobs()...)
	}
	early := n.rounds.early
	n.rounds.early, n.rounds.earlyBytes = nil, 0
	for _, u := range early {
		n.receive(u)
	}
}

// receive enters an announcement into the tally, or keeps it for a future round.
func (n *Node) receive(msg announcement) {
	a := msg.result
	rs := n.rounds.of[a.Step]
	if rs == nil {
		if n.run.state != nil && (msg.author == (identity.ID{}) || n.run.healthy(coordinator.ClientID(msg.author))) {
			n.rounds.keepEarly(msg, n.run.state.Progress.Step)
		}
		return
	}
	if a.Start != rs.start || msg.author == (identity.ID{}) {
		n.compareStarts(rs.start, msg)
		return
	}
	err := rs.Receive(msg.author, a, msg.raw)
	for _, c := range rs.Displaced() {
		n.fetcher.Stop(c)
		n.store.Drop(c.Commitment)
	}
	if msg.payload != nil && n.rounds.replica != nil {
		n.fetcher.Take(rs.Tally, a, msg.payload, n.run.terms(n.engine.trainer))
	}
	switch {
	case err == nil, errors.Is(err, tally.ErrKnownResult):
	case errors.Is(err, tally.ErrOtherSize):
		n.report.log.Warn("a trainer signed a result with two sizes", "step", a.Step, "batch", a.Batch, "from", msg.author.Short())
		if flying := rs.Dispute(a.Batch, a.Blob); flying != nil {
			n.fetcher.Interrupt(flying)
		}
	case errors.Is(err, tally.ErrEquivocation):
		rs.offended(rs.Find(a.Batch), n.tasks.Now())
		n.report.equivocation(rs.Tally, msg.author, a)
	default:
		n.report.log.Debug("announcement refused", "from", msg.author.Short(), "err", err)
	}
}

// compareStarts handles an announcement whose head of the log at the start of the round differs from
// this client's head, or is missing.
func (n *Node) compareStarts(own wire.Head, msg announcement) {
	other := msg.result.Start
	if other == (wire.Head{}) || own == (wire.Head{}) || !other.Contradicts(own) {
		n.report.log.Debug("announcement refused", "from", msg.author.Short(), "err", "the announcement has no head of the log, or this client knows none")
		return
	}
	if n.run.hostFault != nil {
		return
	}
	n.run.hostFault = &follow.HostFault{ // the host signed both heads
		Reason: fmt.Sprintf("the host showed other members a different start of step %d than this client", own.Step),
		Evidence: follow.Evidence{
			Genesis: n.run.genesis, Heads: []wire.Head{own, other}, Index: own.Index, Announcement: bytes.Clone(msg.raw),
		},
	}
	n.engine.Cancel()
	n.report.log.Error("the run's host shows members different histories; this client stops and informs the other members", "step", own.Step)
	wait, _ := n.tasks.Signal()
	n.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := n.tasks.WithTimeout(ctx, forkNoticeTime)
		defer cancel()
		_ = n.Network.Publish(ctx, own.AppendTo(nil)) // members that do not get this message get another member's
		_ = wait(ctx)                                 // gives gossip time to deliver the message
		return func() { n.fail(n.run.hostFault) }
	})
}

// forkNoticeTime is how long a client stays to inform other members of a fork.
const forkNoticeTime = 2 * time.Second

// terms returns the run's current limits for a fetch.
func (v *view) terms(trainer env.Trainer) fetch.Terms {
	c := v.state.Config
	return fetch.Terms{Trainer: trainer, Completion: v.CompletionTime(), Round: time.Duration(c.MaxRoundTrainTime+c.RoundWitnessTime) * time.Millisecond}
}

// fetched receives the results of the fetcher. It implements fetch.Owner.
type fetched struct {
	*exchange.Store
	*reporter
	rounds *roundStates
	shares *models.Shares
}

// Late implements fetch.Owner: the round was dropped here, or is applied.
func (f fetched) Late(t *tally.Tally) bool {
	rs, r := f.rounds.of[t.Round.Step], f.rounds.replica
	return rs == nil || rs.Tally != t || r != nil && t.Round.Step <= r.Step
}

// NoRoom implements fetch.Owner. To free memory for running rounds, it drops data that is kept only for
// members that were away.
func (f fetched) NoRoom() {
	f.Forget(0, 0)
	if r := f.rounds.replica; r != nil {
		f.shares.Stop(r.Epoch.StartStep)
	}
}
