package client

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/handover"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/event"
)

// maxRejoins is how often a client tries to find its way into a running epoch.
const maxRejoins = 5

// rejoin is a client's way back into the rounds of an epoch: from the model that the epoch began
// with by what was counted since.
type rejoin struct {
	engine  *engine
	models  *handover.Models
	store   *exchange.Store
	auditor *auditor.Auditor
	report  *reporter

	replayed
}

// replayed is how far a client has come on its way into an epoch.
type replayed struct {
	epoch        epochKey
	model        *handover.Model // that it began from
	step         uint32          // reached
	hash, before [32]byte        // replica hashes after it, and after the one before
	failed       int
	notBefore    time.Time
	givenUp      bool // it waits for the next epoch
}

// possible reports whether a client without a replica can still get one in this epoch.
func (r *rejoin) possible(v *view, own *replica) bool {
	s := v.state
	if own != nil || s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness || r.givenUp && r.epoch == v.epoch() {
		return false
	}
	return v.isMember() || s.MayReturn(v.myself())
}

// mayTakeSeat reports whether a client with a replica of the epoch can have its seat back.
func (r *rejoin) mayTakeSeat(v *view, own *replica) bool {
	return own != nil && !own.closing && !v.isMember() && v.state.MayReturn(v.myself()) && !r.givenUp
}

// again has the client begin anew after it lost its replica, unless that happens too often.
func (r *rejoin) again(epoch epochKey) {
	r.into(epoch)
	r.replayed = replayed{epoch: epoch, failed: r.failed + 1, givenUp: r.givenUp || r.failed+1 >= maxRejoins}
}

// into forgets how far the client has come on its way into another epoch.
func (r *rejoin) into(epoch epochKey) {
	if r.epoch != epoch {
		r.replayed = replayed{epoch: epoch}
	}
}

// needsModel reports whether nothing was replayed yet: it takes the epoch's model to begin.
func (r *rejoin) needsModel() bool { return r.model == nil || r.step == r.epoch.startStep-1 }

// from begins with the epoch's model, which the trainer is prepared for.
func (r *rejoin) from(m *handover.Model) {
	if r.model != m {
		start := startReplicaOf(m)
		r.model, r.step, r.hash, r.before = m, r.epoch.startStep-1, start, start
	}
}

// rejoin gets the model of the running round. It is called again until the client has a replica.
func (n *Node) rejoin() {
	r := n.seat.rejoin
	r.into(n.run.epoch())
	if !n.engine.Idle() || n.tasks.Now().Before(r.notBefore) {
		return
	}
	if r.needsModel() {
		m := n.models.Held
		switch {
		case !n.holdsModel():
			n.obtainModel()
			return
		case n.engine.prepared.model != m || n.engine.prepared.epoch != r.epoch:
			n.prepare(m, r.epoch)
			return
		}
		r.from(m)
	}
	if l := n.rounds.of[r.step+1]; l != nil && l.EpochStart == r.epoch.startStep { // what follows is tallied
		n.enter(r.model, r.epoch, r.step, r.hash, r.before)
		return
	}
	round, said, ok := replicaOf(n.run.state, n.engine.Lag())
	if ok && round-n.engine.Lag() > r.step {
		r.replay(&n.run, round, said, n.run.members(n.fetcher.Rotation.Next), n.run.settleTime(n.SettleTimeout))
	}
}

// replicaOf returns what a quorum of a round's witnesses says of its replica, and the step of the
// newest such round.
func replicaOf(s *coordinator.State, lag uint32) (step uint32, said [32]byte, ok bool) {
	for i := len(s.Epoch.Rounds) - 1; i >= 0; i-- {
		r := &s.Epoch.Rounds[i]
		if r.Step < s.Epoch.StartStep+lag {
			continue
		}
		count := make(map[[32]byte]int)
		for k := range r.Witnesses {
			w := &r.Witnesses[k]
			if count[w.Replica]++; count[w.Replica] >= int(r.WitnessesNeeded) {
				return r.Step, w.Replica, true
			}
		}
	}
	return 0, said, false
}

// replay applies what was counted before a round, if that gives the replica that the members of the
// round said.
func (r *rejoin) replay(v *view, round uint32, said [32]byte, peers []identity.ID, limit time.Duration) {
	epoch, trainer, until, head := r.epoch, r.engine.trainer, round-r.engine.Lag(), v.startOf(round).Hash
	plan := handover.ReplayPlan{
		From: r.model.Digest, Start: epoch.startStep, ColdSteps: r.engine.prepared.coldSteps,
		After: r.step, Until: until, Hash: r.hash, Peers: peers,
		Wanted: func(replica [32]byte) bool { return tally.ReplicaAt(replica, head) == said },
	}
	r.models.Held = nil
	r.engine.start(opReplay, until, func(ctx context.Context) func() {
		ctx, cancel := r.engine.tasks.WithTimeout(ctx, limit)
		defer cancel()
		got, err := r.models.Follow(ctx, trainer, plan)
		return func() { r.cameTo(v.state.Progress.Step, epoch, until, got, err) }
	})
	r.engine.op.from = epoch.checkpoint
}

// cameTo takes over how far the trainer has come, in the round of a step.
func (r *rejoin) cameTo(now uint32, epoch epochKey, until uint32, got handover.Replayed, err error) {
	r.report.total.ModelReceived += got.Fetched
	switch {
	case r.epoch != epoch:
		r.store.Drop(got.Blobs...)
	case err != nil:
		r.store.Drop(got.Blobs...)
		r.model, r.notBefore = nil, r.engine.tasks.Now().Add(modelPause)
		r.failed++
		r.givenUp = r.failed >= maxRejoins
		r.report.log.Warn("the way back into the running epoch was not found", "step", until, "again", !r.givenUp, "err", err)
	default:
		r.step, r.hash, r.before = until, got.Hash, got.Before
		r.auditor.ForgetMomentum(now)
		r.auditor.ForgetRounds()
		for _, round := range got.Rounds {
			r.store.Remember(round)
		}
		r.report.log.Info("applied what was counted in the running epoch", "step", until, "bytes", got.Fetched)
	}
}

// takeSeatBack asks for the own seat.
func (n *Node) takeSeatBack() {
	if !slices.ContainsFunc(n.run.state.Epoch.Exited, n.run.is) {
		return // it leaves when the running round ends
	}
	epoch, again := n.run.state.Progress.Epoch, n.seat.again
	n.actions.submit("return", n.run.state.Progress.Step, coordinator.Return{Epoch: epoch}, func() {
		if again && !n.seat.again {
			return // the state showed the seat before the host's answer came, and enter said so
		}
		n.seat.again = false
		n.report.log.Info("took its seat back", "epoch", epoch)
		n.report.emit(event.Rejoined{Epoch: epoch, Step: n.run.state.Progress.Step})
	})
}
