package gossip

import (
	"context"
	"fmt"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"
)

// WaitPeers returns when at least count other members have joined the topic as far as is
// known, or with the error of ctx.
func (t *Topic) WaitPeers(ctx context.Context, count int) error {
	events, err := t.topic.EventHandler()
	if err != nil {
		return fmt.Errorf("wait for %d peers on %q: %w", count, t.name, err)
	}
	defer events.Cancel()
	// A peer that leaves and returns between two reads causes no event, so what counts is
	// the sum of the events and not the list at some moment.
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

// Dropped returns how many messages of all the node's topics were lost in its queues.
func (t *Topic) Dropped() uint64 { return t.router.dropped.Load() }
