package client

import "github.com/psyche-go/psyche/node/core"

// finish ends the client when the run is over, the last checkpoint is saved, and no other client
// needs it.
func (n *Node) finish() {
	if n.step(core.Over{Held: modelOf(n.models.Held)}); n.end != nil {
		return
	}
	closed := n.closeEpoch()
	unwritten, _ := n.saver.Unwritten()
	ready := n.step(core.Finish{
		Trainer: n.trainer(), Closed: closed, Saving: n.saver.Busy(), Unwritten: unwritten,
		Failed: n.saver.Failed(), Err: n.saver.Err(), Connected: n.run.connected(),
	})
	n.startModel(ready.Next)
	if ready.Hasten {
		n.saver.Hasten()
	}
}
