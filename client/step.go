package client

import (
	"context"

	"github.com/psyche-go/psyche/backend"
)

// Open begins the client's part in the run for a caller that has a Runtime of its own and
// drives the client by Step instead of Run. Work is the context of everything that the
// client starts.
func (n *Node) Open(work context.Context) error {
	n.work = work
	return n.connect()
}

// Step does what the loop of Run does between two waits: it takes over the newest state
// of the run, when there is a newer one, what peers announced, and what tasks returned,
// and starts what is missing. It reports whether the client has ended, and why when that
// is no success.
func (n *Node) Step(update *backend.Update, proceed []func()) (ended bool, err error) {
	if update != nil {
		n.observe(*update)
	}
	for len(n.heard) > 0 {
		n.hear(<-n.heard)
	}
	for _, f := range proceed {
		f()
	}
	n.reconcile()
	return n.ended, n.err
}

// Model returns the digest of the model that the client holds between two epochs, and
// the step after which it was taken; false while it trains or holds none.
func (n *Node) Model() (digest [32]byte, step uint32, ok bool) {
	if n.model == nil {
		return digest, 0, false
	}
	return n.model.digest, n.model.step, true
}

// Replica returns the hash of what was applied in this epoch and the newest applied step;
// false while the client has no replica of the run's model.
func (n *Node) Replica() (hash [32]byte, step uint32, ok bool) {
	if n.replica == nil {
		return hash, 0, false
	}
	return n.replica.hash, n.replica.step, true
}
