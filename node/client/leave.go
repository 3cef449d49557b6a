package client

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// leaving is a client's way out of a run by itself: it trains no more, applies what counted as far as
// it is there, says which model it holds, and withdraws. Nobody waits for it longer than until.
type leaving struct {
	since, until time.Time // zero: it stays
}

func (l *leaving) begun() bool { return !l.until.IsZero() }

// patient reports whether the outcome of a round that this client has witnessed is still awaited: half
// of the time is for saying what it holds.
func (l *leaving) patient(now time.Time) bool { return now.Sub(l.since) < l.until.Sub(l.since)/2 }

// leave begins to leave.
func (n *Node) leave() {
	now := n.tasks.Now()
	n.seat.leaving = leaving{now, now.Add(n.LeaveTimeout)}
	n.engine.cancelTraining(none)
	n.engine.abandonRecomputation()
	if n.run.isMember() {
		n.report.log.Info("leaving: this client trains no more, and reports the model that it holds", "at most", n.LeaveTimeout)
	}
}

// saidGoodbye reports whether nothing is left to be done before this client withdraws.
func (n *Node) saidGoodbye() bool {
	s, l := n.run.state, &n.seat.leaving
	if s == nil || n.run.lie != nil || !n.run.isMember() || !n.tasks.Now().Before(l.until) {
		return true
	}
	switch s.RunState {
	case coordinator.Warmup:
		return !n.run.onlyHolder()
	case coordinator.RoundTrain, coordinator.RoundWitness:
		return n.saidInRound()
	case coordinator.Cooldown:
		return n.saidInCooldown()
	default:
		return true
	}
}

// saidInRound has the newest model that counts reported. If this client witnessed the running round,
// and it counts because of that, that is the one after it.
func (n *Node) saidInRound() bool {
	s, points := n.run.state, &n.rounds.points
	r, step := n.rounds.replica, s.Progress.Step
	me, ok := s.Member(n.run.myself())
	switch {
	case !ok || r == nil || r.closing:
		return true
	case n.hasWitnessed(step) && n.seat.leaving.patient(n.tasks.Now()):
		return false
	case r.step+1 < step:
		n.settle(step - 1)
		return n.rounds.replica == nil
	case r.step < s.Epoch.StartStep, max(me.Report.Step, s.Epoch.Commit.Step) >= r.step:
		return !points.busy
	case !points.busy && !points.has(r.step) && n.engine.Idle():
		n.takeCommit(r.step)
	}
	return false
}

// saidInCooldown has the epoch's model reported and, where there is a folder, on the disk.
func (n *Node) saidInCooldown() bool {
	s, points, m := n.run.state, &n.rounds.points, n.models.Held
	me, ok := s.Member(n.run.myself())
	last := s.Progress.Step - 1
	if !ok || n.rounds.replica == nil && (m == nil || m.Step != last) {
		return true
	}
	if m == nil || m.Step != last {
		return false
	}
	if n.CheckpointDir != "" && !points.has(last) {
		points.take(last, m.Snapshot, s)
	}
	return me.Report.Step == last && !points.busy
}

// takeCommit takes a copy of the model after the newest applied step.
func (n *Node) takeCommit(step uint32) {
	trainer, replica := n.engine.trainer, n.rounds.replica
	n.engine.start(opSnapshot, 0, func(ctx context.Context) func() {
		taken, err := copyAfter(ctx, trainer, step)
		return func() {
			switch {
			case err != nil:
				n.report.log.Warn("this client leaves without saying which model it holds", "step", step, "err", err)
				n.seat.leaving.until = n.tasks.Now()
			case n.rounds.replica == replica && replica.step == step:
				n.rounds.points.take(step, taken, n.run.state)
			}
		}
	})
}

// hasWitnessed reports whether this client sent its proof of a round.
func (n *Node) hasWitnessed(step uint32) bool {
	l := n.rounds.of[step]
	if l == nil {
		return false
	}
	index, takesPart := l.Round.MemberIndex(n.run.myself())
	return takesPart && (n.actions.answered("witness", step) ||
		slices.ContainsFunc(l.Round.Witnesses, func(w coordinator.Witness) bool { return int(w.Member) == index }))
}

// onlyHolder reports whether this client has the model that an epoch begins with, and other members
// wait for it that do not have it yet.
func (v *view) onlyHolder() bool {
	s := v.state
	me, ok := s.Member(v.myself())
	if !ok || !s.Model.Checkpoint.FromPeers() || !me.HoldsModel && !slices.Contains(s.Epoch.Ready, me.ID) {
		return false
	}
	others := false
	for i := range s.Epoch.Clients {
		c := &s.Epoch.Clients[i]
		if c.State != coordinator.Healthy || v.is(*c) {
			continue
		}
		if c.HoldsModel || slices.Contains(s.Epoch.Ready, c.ID) {
			return false
		}
		others = true
	}
	return others
}

// newestHeld returns the digest of the newest model that the run recorded and this client holds, and
// its step; zero when there is none.
func (n *Node) newestHeld() (digest [32]byte, step uint32) {
	s := n.run.state
	if !s.Model.Checkpoint.FromPeers() {
		return digest, 0
	}
	if n.holdsCheckpoint() {
		return s.Model.Checkpoint.Digest, s.Model.Checkpoint.Step
	}
	saved, _ := n.keeper.Newest(s)
	for _, r := range slices.Backward(s.Earlier) {
		if r.Step > saved.Step && (n.rounds.points.holds(r.Digest) || n.models.Shared(r.Digest) != nil) {
			return r.Digest, r.Step
		}
	}
	return saved.Digest, saved.Step
}

// holdsMore reports whether this client, which waits for its place, holds a newer model of the run than
// the run knows: the run may have recorded it since this client asked for the place.
func (n *Node) holdsMore(waits *coordinator.Client) bool {
	if waits.HoldsModel || n.seat.told == n.run.state.Model.Checkpoint {
		return false
	}
	_, step := n.newestHeld()
	return step > waits.HoldsEarlier
}
