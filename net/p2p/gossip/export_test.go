package gossip

import (
	"context"
	"fmt"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"
)

// WaitPeers returns when at least count other members are known to have joined the topic, or with
// the error of ctx.
func (t *Topic) WaitPeers(ctx context.Context, count int) error {
	events, err := t.topic.EventHandler()
	if err != nil {
		return fmt.Errorf("wait for %d peers on %q: %w", count, t.name, err)
	}
	defer events.Cancel()
	// A peer that leaves and returns between two reads causes no event. The sum of the events
	// therefore counts, and not the list at any one time.
	joined := make(map[peer.ID]struct{})
	for len(joined) < count {
		event, err := events.NextPeerEvent(ctx)
		if err != nil {
			return fmt.Errorf("wait for %d peers on %q, have %d: %w", count, t.name, len(joined), err)
		}
		switch {
		case event.Type == pubsub.PeerLeave:
			delete(joined, event.Peer)
		case t.node.Allows(event.Peer):
			joined[event.Peer] = struct{}{}
		}
	}
	return nil
}

// Dropped returns the number of messages of all the node's topics that were dropped in its queues.
func (t *Topic) Dropped() uint64 { return t.router.dropped.Load() }

// The tests from outside the package use these names.
var (
	ErrName    = errName
	ErrTooMany = errTooMany
)
