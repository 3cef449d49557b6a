package client

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/node/tally"
)

// rejoin gets the model of the running round. The loop calls it until the client has a replica.
func (n *Node) rejoin() {
	r := &n.member.rejoin
	r.into(n.run.epoch(), n.engine.Jobs)
	if !n.engine.Idle() || n.tasks.Now().Before(r.notBefore) {
		return
	}
	if r.step < r.first && !n.rounds.lead(r.epoch.StartStep, r.step, r.first) { // a tally is missing
		r.step, r.hash, r.before = r.first, [32]byte{}, [32]byte{}
	}
	if r.model == nil || r.step == r.first { // nothing was replayed yet
		m := n.beginning()
		switch {
		case m == nil:
			return
		case n.engine.prepared.model != m || n.engine.prepared.epoch != r.epoch:
			n.prepare(m, r.epoch)
			return
		}
		r.from(m)
	}
	if rs := n.rounds.of[r.step+1]; r.knows() && rs != nil && rs.EpochStart == r.epoch.StartStep { // tallies cover the following rounds
		n.enter(r.model, r.epoch, r.step, r.hash, r.before)
		return
	}
	q, ok := n.run.quorum(n.engine.Lag())
	if ok && (q.after > r.step || r.asksForHash() && n.rounds.lead(r.epoch.StartStep, q.after, r.step)) {
		n.replay(q)
	}
}

// beginning returns the model that the return to the epoch starts from, or nil while it is being
// fetched. It gets an intermediate checkpoint from this client's own copy, or from an older checkpoint
// and the results counted since then, or from members that hold it. The model is accepted only with
// the digest that a quorum reported.
func (n *Node) beginning() *modelsync.Model {
	r, s, definition := &n.member.rejoin, n.run.state, n.run.definition()
	switch {
	case r.begins(n.models.Held):
		return n.models.Held
	case s.Epoch.Commit.Step == 0 || r.tries >= maxIntermediateTries:
		if r.commit = (coordinator.Recorded{}); n.engine.holds(n.models.Models, definition) {
			return n.models.Held
		}
		n.obtainModel()
		return nil
	case r.tries%2 == 0 || r.commit.Step == 0: // otherwise ask the same members again, which may have it ready now
		r.commit, r.holders = s.Epoch.Commit, n.run.holders(s.Epoch.Commit.Step)
	}
	definition.Checkpoint = definition.Checkpoint.Recorded(r.commit)
	redefined := n.engine.redefined(definition)
	if redefined {
		n.engine.trainer = nil
	}
	copied, _ := n.models.copies.Find(r.commit.Digest)
	limit := time.Duration(s.Config.WarmupTime) * time.Millisecond
	n.load(s.Model.Checkpoint, limit, modelsync.Request{
		Definition: definition, Redefined: redefined, Running: true,
		Timeout: commitTimeout << (r.tries / 2), Peers: r.holders, Copy: copied.Memory, Time: limit,
	})
	return nil
}

// holders returns randomly chosen members that reported an intermediate checkpoint.
func (v *view) holders(step uint32) []identity.ID {
	ids := v.drawn(func(c *coordinator.Client) bool { return c.HoldsEarlier == step })
	return ids[:min(len(ids), askedHolders)]
}

// quorum is the replica value that a quorum of a round's witnesses signed.
type quorum struct {
	after uint32   // newest step that the replica includes
	said  [32]byte // replica value, bound to head
	head  [32]byte // hash of the log's head at the round's start
}

// is reports whether a replica hash matches the value that the quorum signed.
func (q *quorum) is(replica [32]byte) bool { return tally.ReplicaAt(replica, q.head) == q.said }

// quorum returns the value of the newest quorum of the epoch.
func (v *view) quorum(lag uint32) (q quorum, ok bool) {
	e := &v.state.Epoch
	for _, r := range slices.Backward(e.Rounds) {
		if r.Step < e.StartStep {
			break
		}
		count := make(map[[32]byte]int)
		for k := range r.Witnesses {
			said := r.Witnesses[k].Replica
			if count[said]++; count[said] >= int(r.WitnessesNeeded) {
				return quorum{after: max(r.Step, e.StartStep-1+lag) - lag, said: said, head: v.startOf(r.Step).Hash}, true
			}
		}
	}
	return q, false
}

// replay gets the counted results up to the step of a quorum's value from peers, and applies them if
// they lead to that value. If the client has already reached the step, replay only requests the
// replica hash.
func (n *Node) replay(q quorum) {
	r, trainer, limit, until := &n.member.rejoin, n.engine.trainer, n.run.CompletionTime(), q.after
	plan := modelsync.ReplayPlan{
		From: beganWith(r.epoch, r.model), Start: r.epoch.StartStep, ColdSteps: n.engine.prepared.coldSteps,
		After: min(r.step, until), Until: until, Hash: r.hash, Peers: n.run.Members(), Wanted: q.is,
	}
	if until > r.step {
		n.models.Held = nil
	}
	var f modelsync.Replayed
	start(&n.engine, core.Replay{From: r.epoch.Checkpoint, Until: until}, func(ctx context.Context) (err error) {
		ctx, cancel := n.tasks.WithTimeout(ctx, limit)
		defer cancel()
		f, err = n.models.Follow(ctx, trainer, plan)
		return err
	}, func(err error) {
		n.report.total.ModelReceived += f.Fetched
		now := n.run.state.Progress.Step
		lost := r.came(n.tasks.Now(), now, until, f, err)
		switch {
		case lost:
			n.store.Drop(f.Blobs...)
			n.report.log.Warn("cannot rejoin the running epoch", "step", until, "will_retry", !r.tooMany(r.epoch.Term(now)), "err", err)
		case err == nil:
			n.auditor.ForgetMomentum(now)
			n.auditor.ForgetRounds()
			for _, round := range f.Rounds {
				n.store.Remember(round)
			}
			if len(f.Rounds) > 0 {
				n.report.log.Info("applied the counted results of the running epoch; optimizer reset", "step", until, "bytes", f.Fetched)
			}
		}
	}, func(error) {
		n.report.total.ModelReceived += f.Fetched
		n.store.Drop(f.Blobs...)
	})
}
