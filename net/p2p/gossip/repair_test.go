package gossip

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// gossipStreams returns the streams on which a node sends its gossip to p.
func gossipStreams(t *testing.T, n *p2p.Node, p peer.ID) []network.Stream {
	t.Helper()
	service, err := n.Service("test host", func(_ context.Context, h host.Host) (any, error) { return h, nil })
	if err != nil {
		t.Fatal(err)
	}
	var streams []network.Stream
	for _, c := range service.(host.Host).Network().ConnsToPeer(p) {
		for _, s := range c.GetStreams() {
			if s.Stat().Direction == network.DirOutbound && slices.Contains(pubsub.GossipSubDefaultProtocols, s.Protocol()) {
				streams = append(streams, s)
			}
		}
	}
	return streams
}

// until calls done periodically until it reports true.
func until(t *testing.T, subject string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), p2ptest.Wait)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatal(subject)
		}
	}
}

// TestMembersFindEachOtherAgain breaks the stream in one direction. The other direction and the
// connection stay, as when one of two connections ends. The test does this more often than the
// library itself opens a new stream.
func TestMembersFindEachOtherAgain(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	topics, got := make([]*Topic, len(nodes)), make([]chan string, len(nodes))
	for i, n := range nodes {
		got[i] = make(chan string, 64)
		topic, err := Join(t.Context(), n, "run/test", func(_ identity.ID, data []byte) error { got[i] <- string(data); return nil })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = topic.Close() })
		topics[i] = topic
	}
	b, err := p2p.PeerID(nodes[1].ID())
	if err != nil {
		t.Fatal(err)
	}
	for round := range 6 {
		// The library forgets the topics of b before it opens a new stream.
		until(t, fmt.Sprintf("no stream in round %d", round), func() bool { return len(gossipStreams(t, nodes[0], b)) > 0 })
		for i, topic := range topics {
			data := fmt.Sprintf("%d in round %d", i, round)
			until(t, data+" did not arrive", func() bool {
				if err := topic.Publish(t.Context(), []byte(data)); err != nil {
					t.Fatal(err)
				}
				select {
				case arrived := <-got[1-i]:
					if arrived != data {
						t.Fatalf("got %q, want %q", arrived, data)
					}
					return true
				default:
					return false
				}
			})
		}
		for _, s := range gossipStreams(t, nodes[0], b) {
			_ = s.Reset()
		}
	}
}
