package client

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/tally"
)

// finalize advances the model until it includes the results of all finished rounds up to a step, and
// reports whether it does. A call starts at most one action, for the next unapplied round: it frees
// the engine, applies the round's results, or asks peers for missing results. The loop calls it
// again after each change. The client is desynchronised if the results do not come in time, or if
// it missed counted results of a round.
func (n *Node) finalize(want uint32) bool {
	replica := n.rounds.replica
	if replica.Step >= want {
		return true
	}
	rs := n.rounds.of[replica.Step+1]
	if !n.step(core.Outstanding{
		Replica: replica, Want: want, Speculated: n.engine.speculated(replica.Step + 1),
		Known: rs != nil && rs.Final && rs.EpochStart == replica.Epoch.StartStep,
	}).Judge {
		return false
	}
	if !rs.Began {
		rs.begin(replica, n.engine.Lag(), n.report)
	}
	known, recorded := replica.Recorded(n.run.state)
	var outcome tally.Outcome
	ready := n.step(core.Judged{
		Step: rs.Round.Step, Outvoted: rs.Outvoted(rs.seats), MissingSince: &rs.MissingSince, Completion: n.run.CompletionTime(), UnsureTimeout: tally.UnsureTimeout,
		InVain: rs.InVain(core.LastAttempts), Recorded: known && rs.Round.Step <= recorded, WellAnswered: rs.wellAnswered(),
		Judge: func(late bool) core.Verdict {
			outcome = rs.Judge(n.tasks.Now(), late)
			return verdictOf(outcome)
		},
	})
	switch {
	case ready.Next != nil:
		n.apply(rs, outcome)
		return outcome.Missing == 0 && n.rounds.replica.Step >= want
	case ready.AskPeers && asksPeers(outcome) && n.tasks.Now().Sub(rs.asked) >= min(fetch.Pause, n.RepublishInterval):
		rs.asked = n.tasks.Now()
		n.gossip.askFor(rs, outcome, n.run.me, n.fetcher.Rotation, n.receive)
	}
	return false
}

// verdictOf describes an outcome.
func verdictOf(o tally.Outcome) core.Verdict {
	v := core.Verdict{Missing: o.Missing, Unsure: o.Unsure, Claimed: o.Claimed}
	if o.NoRoom {
		v.NoRoom = env.ErrNoRoom
	}
	return v
}

// asksPeers reports whether requests for the announcements of peers can help to complete a round.
// They do not help if this client knows which results count and is fetching them without failures:
// the answers would only compete with the results for the link. After a failed fetch they can help,
// because the announced size may have been wrong, and another announcement can correct it.
func asksPeers(o tally.Outcome) bool {
	return !o.Known() || slices.ContainsFunc(o.Sources, func(c *tally.Candidate) bool {
		return c.State == tally.Refused || c.State != tally.Held && c.Attempts > 0
	})
}

// finalizeEarly applies the results of the next finished round before a training needs them, if all
// of them are here.
func (n *Node) finalizeEarly(want uint32) {
	rs := n.rounds.of[n.rounds.replica.Step+1]
	if rs == nil {
		return
	}
	var outcome tally.Outcome
	if n.step(core.Early{
		Step: rs.Round.Step, Want: want, Known: rs.Final && rs.Began && rs.EpochStart == n.rounds.replica.Epoch.StartStep, Outvoted: rs.Outvoted(rs.seats),
		Judge: func() core.Verdict {
			outcome = rs.Judge(n.tasks.Now(), false)
			return verdictOf(outcome)
		},
	}).Next != nil {
		n.apply(rs, outcome)
	}
}

// apply applies a round's outcome to the model, as node/core decides. If the outcome was predicted, the
// model already includes it, and apply only records that.
func (n *Node) apply(rs *roundState, o tally.Outcome) {
	f, later := n.confirm(rs, o)
	if later {
		return
	}
	ready := n.step(core.Counted{Replica: n.rounds.replica, Step: rs.Round.Step, Confirmed: f != nil, Copies: n.models.copies.described()})
	if ready.Included {
		if f == nil {
			f = &speculation{}
		}
		n.applied(rs, o, f.record, f.seconds)
		return
	}
	if next, takes := ready.Next.(core.Snapshot); takes {
		n.models.copies.takeNow(&n.run, &n.engine, next.Step, n.models.copies.skipped(next.Step))
	}
	w, applies := ready.Next.(core.Apply)
	if !applies {
		return
	}
	own, votes := rs.isOwn(o), tally.VotesOf(o.Counted)
	trainer, step := n.engine.trainer, w.Step
	kept := n.auditor.Record(rs.Tally, o, n.rounds.replica.ColdSteps)
	var commit *taking // nil: no intermediate checkpoint is due
	if w.Take {
		commit = n.models.copies.begin(n.run.state, trainer, step)
	}
	n.models.Held = nil
	start(&n.engine, w, func(ctx context.Context) (r application) {
		begun := n.tasks.Now()
		var payloads [][]byte
		if payloads, r.unread, r.err = fetch.Read(ctx, n.Network, o.Sources); r.err == nil {
			r.err = trainer.Apply(ctx, step, payloads, votes, own)
		}
		r.took = n.tasks.Now().Sub(begun)
		switch {
		case commit == nil:
		case r.err == nil:
			commit.take(ctx, n.tasks, trainer)
		default:
			commit.abandon()
		}
		if r.err == nil {
			kept.Read(ctx, n.Network, payloads)
		}
		return r
	}, func(r application) {
		switch {
		case len(r.unread) > 0:
			n.fetcher.Unread(rs.Tally, r.unread, r.err)
		case r.err != nil:
			n.step(core.Applied{Step: step, Err: r.err})
		default:
			n.step(core.Applied{Step: step, Took: r.took})
			n.applied(rs, o, kept, r.took.Seconds())
			if commit == nil {
				return
			}
			if err := n.models.copies.taken(commit, n.run.state); err != nil {
				n.models.copies.skipped(step)(err)
			}
		}
	}, nil)
}

// application is the result of applying a round's outcome.
type application struct {
	unread []*tally.Candidate // results that could not be read; the weights have not changed
	took   time.Duration
	err    error
}

// applied records that the model includes a round's outcome. It advances the replica and its hash
// by one step, drops results that are no longer needed, and informs the reporter and the auditor.
func (n *Node) applied(rs *roundState, o tally.Outcome, kept *auditor.Record, seconds float64) {
	replica, step := n.rounds.replica, rs.Round.Step
	n.models.Held = nil
	n.fetcher.StopRound(rs.Tally) // results that do not count are no longer needed
	replica.Before, replica.Hash = replica.Hash, tally.ExtendReplica(replica.Hash, step, o.Counted)
	replica.Step = step
	n.store.Remember(remembered(replica, rs, o))
	n.auditor.Keep(kept)
	n.store.Drop(rs.Release(o)...)
	n.report.credit(rs, o, n.run.names())
	n.report.applied(rs, o, replica.Hash, seconds, n.fetcher.Received)
}

// remembered returns the record of an applied round for members that were away.
func remembered(r *core.Replica, rs *roundState, o tally.Outcome) exchange.AppliedRound {
	round := exchange.AppliedRound{Step: rs.Round.Step, EpochStart: rs.EpochStart, ColdSteps: r.ColdSteps, From: r.From, Before: r.Before}
	for i, c := range o.Counted {
		round.Results = append(round.Results, exchange.AppliedResult{Counted: c, Owner: rs.Find(c.Batch).Owner, Size: o.Sources[i].Size})
	}
	return round
}
