package client

import "github.com/psyche-go/psyche/node/core"

// cooldown applies outstanding results, shares the model, measures it on held-out data, and reports its digest.
func (n *Node) cooldown() {
	if !n.closeEpoch() {
		return
	}
	ready := n.step(core.Cooldown{Held: modelOf(n.models.Held)})
	if ready.Persist == nil {
		return
	}
	ready = n.step(core.Persisted{Done: n.saver.Ahead(n.run.state), HeldOut: n.heldOut()})
	if w, measures := ready.Next.(core.Measure); measures {
		n.engine.measure(w, func(r core.Evaluated) { n.step(r) })
	}
}

// closeEpoch finishes an epoch whose rounds are over: it applies the last results, and takes and
// shares a snapshot of the model. It reports whether this work is complete, also for earlier epochs.
// The loop calls it until then, even if the run has moved to the next Warmup.
func (n *Node) closeEpoch() bool {
	for {
		r := n.rounds.replica
		ready := n.step(core.Close{Replica: r, Newest: n.rounds.newestOf(r), Taken: n.models.Held != nil})
		switch next := ready.Next.(type) {
		case core.Apply:
			if !n.finalize(next.Step) && n.rounds.replica != nil {
				return false
			}
		case core.Snapshot:
			if n.engine.Idle() {
				n.models.snapshotter.take()
			}
			return false
		default:
			if ready.LeaveEpoch {
				n.rounds.replica = nil
				n.engine.leave()
			}
			return true
		}
	}
}
