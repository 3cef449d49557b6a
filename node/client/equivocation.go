package client

import (
	"math"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Members that hold the same proof of two results take turns to send it: first one member, then 3,
// 12 and 48, and the other 192 of 256 after two seconds. Each turn has three times as many members
// as all turns before it.
const (
	turnPause  = 500 * time.Millisecond
	turnGrowth = 4
)

// offender identifies the trainer that signed two results of a step.
type offender struct {
	id   coordinator.ClientID
	step uint32
}

// eject sends the run the two announcements of each trainer that signed two results of a batch, if
// it is this client's turn and the run would still eject the trainer for it. The state shows
// whether another member was faster.
func (n *Node) eject() {
	const kind = "equivocation"
	state, me := n.run.state, n.run.myself()
	for _, step := range n.rounds.steps() {
		rs := n.rounds.of[step]
		for _, o := range rs.offences {
			about := offender{o.slot.Owner, step}
			if o.over == state || about.id == me || n.actions.answered(kind, about) || n.tasks.Now().Sub(o.known) < turnOf(&rs.Round, me) {
				continue
			}
			first, second := o.slot.Two()
			proof, proves := n.Announcements.Prove(first, second)
			judged := state.Clone()
			if !proves || judged.Apply(me, math.MaxUint64, proof) != nil {
				o.over = state
				continue
			}
			n.actions.submit(kind, about, proof, func() {
				n.report.log.Warn("proved to the run that a trainer signed two results: it is ejected",
					"step", about.step, "batch", o.slot.Batch, "client", identity.ID(about.id))
			})
		}
	}
}

// turnOf returns how long a client waits for other clients to send the proof of two results of a
// round. A client that is not in the round has the last turn.
func turnOf(r *coordinator.Round, id coordinator.ClientID) (wait time.Duration) {
	rank := uint32(coordinator.MaxClients)
	if member, ok := r.MemberIndex(id); ok {
		rank = assign.Position(uint32(member), uint32(len(r.Members)), r.Seed, "evidence")
	}
	for before := uint32(1); before <= rank; before *= turnGrowth {
		wait += turnPause
	}
	return wait
}
