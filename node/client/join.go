package client

import (
	"context"

	"github.com/psyche-go/psyche/node/core"
)

// keepSeat joins the run if the client has no seat, or a seat that it cannot fill.
func (n *Node) keepSeat() {
	n.step(core.Look{Trainer: n.trainer(), Replica: n.rounds.replica})
}

// withdraw gives up the client's seat. It is the client's last action.
func (n *Node) withdraw(ctx context.Context) {
	n.member.Step(n.tasks.Now(), core.Left{})
	for _, a := range n.member.Ready().Submit {
		n.actions.sendLast(ctx, a.Action, n.WithdrawTimeout)
	}
	n.member.Advance()
}
