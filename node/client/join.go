package client

import (
	"context"

	"github.com/psyche-go/psyche/node/core"
)

// keepSeat joins the run if the client has no seat, or a seat that it cannot fill.
func (n *Node) keepSeat() {
	m, has := n.member, n.rounds.replica != nil
	n.step(core.Look{
		Held: modelOf(n.models.Held), Replica: has, Loaded: n.engine.holds(n.models.Models, n.run.definition()),
		Returns: m.rejoin.possible(&n.run, false), SitsDown: m.rejoin.mayTakeSeat(&n.run, n.rounds.replica.Follows()),
	})
}

// withdraw gives up the client's seat. It is the client's last action.
func (n *Node) withdraw(ctx context.Context) {
	n.member.Step(n.tasks.Now(), core.Left{})
	for _, a := range n.member.Ready().Submit {
		n.actions.sendLast(ctx, a.Action, n.WithdrawTimeout)
	}
	n.member.Advance()
}
