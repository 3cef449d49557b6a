package client

import (
	"time"

	"github.com/psyche-go/psyche/node/core"
)

// leave starts the graceful leave. After limit, no new work starts.
func (n *Node) leave(limit time.Duration) {
	n.models.copies.Leaving = true
	n.step(core.Interrupted{Limit: limit})
}

// left does the remaining work of a leaving client, and reports whether nothing is left to do before it
// withdraws.
func (n *Node) left() bool {
	s, m, copies := n.run.state, n.models.Held, &n.models.copies
	if s == nil {
		return true
	}
	look := core.Leaving{
		Replica: n.rounds.replica, Held: modelOf(m), InMemory: m != nil && m.Snapshot.Tensors != nil,
		HostFault: n.run.hostFault != nil, Unreported: n.models.holds.unreported(s, n.run.myself()), Writing: n.models.snapshotter.lent != nil,
		Copies: copies.described(),
	}
	if rs := n.rounds.of[s.Progress.Step]; rs != nil {
		look.Round = &rs.Round
	}
	ready := n.step(look)
	switch next := ready.Next.(type) {
	case core.Apply:
		n.finalize(next.Step)
		return n.rounds.replica == nil
	case core.Snapshot:
		copies.takeNow(&n.run, &n.engine, next.Step, func(err error) {
			n.report.log.Warn("leaving without reporting this client's model", "step", next.Step, "err", err)
			n.member.Leave.Hurry(n.tasks.Now())
		})
	}
	if ready.CopyHeld {
		copies.take(m.Step, m.Snapshot, s)
	}
	return ready.Gone
}
