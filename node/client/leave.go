package client

import (
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
)

// leave starts the graceful leave. After limit, no new work starts.
func (n *Node) leave(limit time.Duration) {
	n.member.Leave.Begin(n.tasks.Now(), limit)
	n.models.copies.Leaving = true
	n.engine.CancelTraining(core.None)
	n.engine.CancelRecomputation(true)
	if n.run.isMember() {
		n.report.log.Info("leaving: this client stops training and reports its model; a second Ctrl-C ends it at once", "limit", limit)
	}
}

// left reports whether nothing is left to do before this client withdraws. It also logs that the client
// stays after its time limit.
func (n *Node) left() bool {
	s, l, copies, now := n.run.state, &n.member.Leave, &n.models.copies, n.tasks.Now()
	if s == nil || n.run.hostFault != nil || !n.run.isMember() {
		return true
	}
	if l.Late(now) {
		_, copying := n.engine.Work().(core.Snapshot)
		working := !copies.Finished() || n.models.holds.unreported(s, n.run.myself())
		limit, stays := l.Extend(now, copying || n.models.snapshotter.lent != nil, working, copies.Bytes)
		if !stays {
			return true
		}
		if passed, due := l.Remind(now); due {
			n.report.log.Info("leaving: the model is still being copied, hashed or written for the other members; a second Ctrl-C ends this client at once",
				"bytes", copies.Bytes, "for", passed.Round(time.Second), "limit", limit)
		}
	}
	switch s.RunState {
	case coordinator.Warmup:
		return !n.run.onlyHolder()
	case coordinator.RoundTrain, coordinator.RoundWitness:
		return n.leftRound()
	case coordinator.Cooldown:
		return n.leftCooldown()
	default:
		return true
	}
}

// leftRound reports the newest model that includes all counted results, and returns true when
// nothing is left to do. If this client has sent its proof of the running round, it first waits for
// the outcome of that round.
func (n *Node) leftRound() bool {
	s, l, copies, now := n.run.state, &n.member.Leave, &n.models.copies, n.tasks.Now()
	r, step := n.rounds.replica, s.Progress.Step
	me, ok := s.Member(n.run.myself())
	rs := n.rounds.of[step]
	switch {
	case !ok || !n.rounds.replica.Follows():
		return true
	case l.Late(now):
		return false // only work in progress is completed
	case rs != nil && n.member.HasWitnessed(now, &rs.Round) && l.AwaitsOutcome(now):
		return false
	case r.Step+1 < step:
		n.finalize(step - 1)
		return n.rounds.replica == nil
	case r.Step < s.Epoch.StartStep, max(me.Report.Step, s.Epoch.Commit.Step) >= r.Step:
		return copies.Finished()
	case !copies.Busy() && !copies.Has(r.Step) && n.engine.Idle():
		copies.takeNow(&n.run, &n.engine, r.Step, func(err error) {
			n.report.log.Warn("leaving without reporting this client's model", "step", r.Step, "err", err)
			l.Hurry(n.tasks.Now())
		})
	}
	return false
}

// leftCooldown makes the client report the epoch's model and, if there is a folder, write it to the disk. It
// returns true when nothing is left to do.
func (n *Node) leftCooldown() bool {
	s, copies, m := n.run.state, &n.models.copies, n.models.Held
	me, ok := s.Member(n.run.myself())
	last := s.Progress.Step - 1
	if !ok || n.rounds.replica == nil && (m == nil || m.Step != last) {
		return true
	}
	if m == nil || m.Step != last {
		return false
	}
	if copies.Folder && !copies.Has(last) && !n.member.Leave.Late(n.tasks.Now()) && m.Snapshot.Tensors != nil {
		copies.take(last, m.Snapshot, s)
	}
	return me.Report.Step == last && copies.Finished()
}
