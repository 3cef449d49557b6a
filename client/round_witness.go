package client

import (
	"slices"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
)

// roundWitness proves what is held of the round that has just ended.
func (n *Node) roundWitness() {
	next := n.run.state.Progress.Step + 1
	n.engine.cancelTraining(func(uint32) bool { return n.engine.isAhead(next) })
	if l := n.keepUp(); l != nil {
		n.sendWitness(l, true)
		n.trainAhead(l)
	}
}

// sendWitness sends the proof of an elected witness: as soon as everything that can be
// expected is held, or at the round's end whatever is.
func (n *Node) sendWitness(l *ledger, now bool) {
	complete := !now && (l.elected || !l.told && n.Events != nil) && l.Complete(n.run.awaits(l.Book))
	if complete && !l.told {
		l.told = true
		n.report.held(l)
	}
	if !l.elected || !now && !complete {
		return
	}
	index, _ := l.Round.MemberIndex(n.run.myself())
	if slices.ContainsFunc(l.Round.Witnesses, func(w coordinator.Witness) bool { return int(w.Member) == index }) {
		return
	}
	if n.errands.answered("witness", l.Round.Step) {
		return
	}
	proof, count := l.Witness()
	n.errands.submit("witness", proof.Step, proof, func() {
		n.report.log.Info("witnessed", "step", proof.Step, "held", count, "batches", len(l.Slots))
		n.report.emit(event.WitnessSent{Step: proof.Step, Held: count, Batches: len(l.Slots)})
	})
}
