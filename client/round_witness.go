package client

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/assign"
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

// patience is how long a witness that holds the results of two thirds of the awaited trainers
// waits for the others at least. Where these needed more than four times as long, it is a quarter
// of that.
const patience = 2 * time.Second

// complete reports whether a witness has waited long enough for a round's results: it holds all
// that are awaited, or those that it lacks are late by the measure of most. No member, and no
// third of them, sets the pace.
func (l *ledger) complete(awaited func(coordinator.ClientID) bool, now time.Time) bool {
	held, all := l.Progress(awaited)
	if held == all {
		return true
	}
	if held < assign.Quorum(all) {
		l.most = time.Time{}
		return false
	}
	if l.most.IsZero() {
		l.most = now
	}
	return now.Sub(l.most) > max(patience, l.most.Sub(l.opened)/4)
}

// sendWitness sends the proof of an elected witness: as soon as everything that can be
// expected is held, or at the round's end whatever is.
func (n *Node) sendWitness(l *ledger, now bool) {
	complete := !now && (l.elected || !l.told && n.Events != nil) && l.complete(n.run.awaits(l.Book), n.tasks.Now())
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
	if member, known := n.run.state.Member(n.run.myself()); known && n.run.state.Config.VerificationPercent > 0 {
		proof.Reveal = n.seat.reveals.withProof(member, n.run.state.Progress.Epoch)
	}
	n.errands.submit("witness", proof.Step, proof, func() {
		n.report.log.Info("witnessed", "step", proof.Step, "held", count, "batches", len(l.Slots))
		n.report.emit(event.WitnessSent{Step: proof.Step, Held: count, Batches: len(l.Slots)})
	})
}
