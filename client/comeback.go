package client

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/client/books"
	"github.com/psyche-go/psyche/client/handover"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
)

// maxComebacks is how often a client tries to find its way into a running epoch.
const maxComebacks = 5

// comeback is a client's way back into the rounds of an epoch: from the model that the epoch began
// with by what was counted since.
type comeback struct {
	epoch        epochKey
	model        *handover.Model // that it began from
	step         uint32          // reached
	hash, before [32]byte        // replica hashes after it, and after the one before
	failed       int
	notBefore    time.Time
	given        bool // up: it waits for the next epoch
}

// wayBack is what a client does to take part in a running epoch again.
type wayBack struct{ *Node }

// comesBack reports whether the client has no replica and can still get one in this epoch.
func (n wayBack) comesBack() bool {
	s := n.run.state
	if n.rounds.replica != nil || s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness {
		return false
	}
	if b := n.seat.back; b.given && b.epoch == n.run.epoch() {
		return false
	}
	return n.run.isMember() || s.MayReturn(n.run.myself())
}

// returns reports whether the client, which has a replica of the epoch, can have its seat back.
func (n wayBack) returns() bool {
	return n.rounds.replica != nil && !n.rounds.replica.closing && !n.run.isMember() && n.run.state.MayReturn(n.run.myself()) && !n.seat.back.given
}

// comeBack gets the model of the running round and, when the client is no member any more, its
// seat. It is called again until that is done.
func (n wayBack) comeBack() {
	b, s := &n.seat.back, n.run.state
	if key := n.run.epoch(); b.epoch != key {
		*b = comeback{epoch: key}
	}
	if !n.engine.Idle() || n.tasks.Now().Before(b.notBefore) {
		return
	}
	m := n.models.Held
	if b.model == nil || b.step == b.epoch.startStep-1 {
		switch {
		case !n.holdsModel():
			n.obtainModel()
			return
		case n.engine.prepared.model != m || n.engine.prepared.epoch != b.epoch:
			n.prepare(m, b.epoch)
			return
		case b.model != m:
			start := startReplicaOf(m)
			b.model, b.step, b.hash, b.before = m, b.epoch.startStep-1, start, start
		}
	}
	if l := n.rounds.of[b.step+1]; l != nil && l.EpochStart == b.epoch.startStep { // what follows is in the books
		n.enter(b.model, b.epoch, b.step, b.hash, b.before)
	} else if round, said, ok := replicaOf(s, n.engine.Lag()); ok && round-n.engine.Lag() > b.step {
		n.followTo(round-n.engine.Lag(), said, n.run.startOf(round).Hash)
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

// followTo applies what was counted until a step, if that gives the replica of which the members
// of a round said so, whose start has the head.
func (n wayBack) followTo(until uint32, said, head [32]byte) {
	b := &n.seat.back
	epoch, trainer := b.epoch, n.engine.trainer
	course := handover.Course{
		From: b.model.Digest, Start: epoch.startStep, ColdSteps: n.engine.prepared.coldSteps,
		After: b.step, Until: until, Hash: b.hash, Peers: n.run.members(n.fetcher.Rotation.Next),
		Wanted: func(replica [32]byte) bool { return books.ReplicaAt(replica, head) == said },
	}
	limit := n.run.settleTime(n.SettleTimeout)
	n.models.Held = nil
	n.engine.start(opReplay, until, func(ctx context.Context) func() {
		ctx, cancel := n.tasks.WithTimeout(ctx, limit)
		defer cancel()
		way, err := n.models.Follow(ctx, trainer, course)
		return func() { n.followed(epoch, until, way, err) }
	})
	n.engine.op.from = epoch.checkpoint
}

// followed takes over how far the trainer has come.
func (n wayBack) followed(epoch epochKey, until uint32, way handover.Way, err error) {
	b := &n.seat.back
	n.report.total.ModelReceived += way.Fetched
	switch {
	case b.epoch != epoch:
		n.store.Drop(way.Blobs...)
	case err != nil:
		n.store.Drop(way.Blobs...)
		b.model, b.notBefore = nil, n.tasks.Now().Add(modelPause)
		b.failed++
		b.given = b.failed >= maxComebacks
		n.report.log.Warn("the way back into the running epoch was not found", "step", until, "again", !b.given, "err", err)
	default:
		b.step, b.hash, b.before = until, way.Hash, way.Before
		n.auditor.ForgetMomentum(n.run.state.Progress.Step)
		n.auditor.ForgetRounds()
		for _, round := range way.Rounds {
			n.store.Remember(round)
		}
		n.report.log.Info("applied what was counted in the running epoch", "step", until, "bytes", way.Fetched)
	}
}

// enter gives the client its replica after a step, which it has come to from the epoch's model.
func (n wayBack) enter(m *handover.Model, key epochKey, step uint32, hash, before [32]byte) {
	n.fetcher.ForgetStalls()
	n.rounds.replica = &replica{epoch: key, hash: hash, before: before, step: step, coldSteps: n.engine.prepared.coldSteps, from: m.Digest}
	n.report.emit(event.Ready{
		Epoch: n.run.state.Progress.Epoch, Step: m.Step, Digest: hexOf(m.Digest),
		Source: m.Source, Bytes: m.Fetched, Seconds: m.Seconds,
	})
	if n.seat.again && n.run.isMember() {
		n.seat.again = false
		n.report.emit(event.Rejoined{Epoch: n.run.state.Progress.Epoch, Step: n.run.state.Progress.Step})
	}
	n.report.log.Info("holds the model", "epoch", n.run.state.Progress.Epoch, "digest", hexOf(m.Digest)[:16], "source", m.Source)
}

// takeSeatBack asks for the own seat.
func (n wayBack) takeSeatBack() {
	if !slices.ContainsFunc(n.run.state.Epoch.Exited, n.run.is) {
		return // it leaves when the running round ends
	}
	epoch, again := n.run.state.Progress.Epoch, n.seat.again
	n.errands.submit("return", n.run.state.Progress.Step, coordinator.Return{Epoch: epoch}, func() {
		if again && !n.seat.again {
			return // the state showed the seat before the host's answer came, and enter said so
		}
		n.seat.again = false
		n.report.log.Info("took its seat back", "epoch", epoch)
		n.report.emit(event.Rejoined{Epoch: epoch, Step: n.run.state.Progress.Step})
	})
}
