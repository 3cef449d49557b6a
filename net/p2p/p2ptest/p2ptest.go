// Package p2ptest provides p2p nodes on 127.0.0.1 for tests.
//
// Call New for connected members, or Node for single nodes that the test connects itself. The nodes
// are closed when the test ends.
package p2ptest

import (
	"crypto/sha256"
	"testing"
	"time"

	"context"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
)

// Wait bounds every wait of a test. A passing test never reaches it.
const Wait = 20 * time.Second

// Loopback contains the default listen addresses of a node.
var Loopback = []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}

// Key returns a key that depends only on name.
func Key(name string) identity.Key { return identity.FromSeed(sha256.Sum256([]byte(name))) }

// Node starts a node without members that listens on listen, or on Loopback if listen is empty.
func Node(t testing.TB, name string, listen ...string) *p2p.Node {
	t.Helper()
	if len(listen) == 0 {
		listen = Loopback
	}
	n, err := p2p.New(context.Background(), p2p.Options{Key: Key(name), Listen: listen})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close node %s: %v", name, err)
		}
	})
	return n
}

// Peers returns a member list that contains nodes.
func Peers(nodes ...*p2p.Node) []p2p.Peer {
	peers := make([]p2p.Peer, 0, len(nodes))
	for _, n := range nodes {
		peers = append(peers, p2p.Peer{ID: n.ID(), Addrs: n.Addrs()})
	}
	return peers
}

// IDs returns the identities of nodes, in order.
func IDs(nodes ...*p2p.Node) []identity.ID {
	ids := make([]identity.ID, 0, len(nodes))
	for _, n := range nodes {
		ids = append(ids, n.ID())
	}
	return ids
}

// Connect makes the nodes members of each other and waits for all connections.
func Connect(t testing.TB, nodes ...*p2p.Node) {
	t.Helper()
	for _, n := range nodes {
		n.SetMembers(Peers(nodes...))
	}
	ctx, cancel := context.WithTimeout(context.Background(), Wait)
	defer cancel()
	for _, n := range nodes {
		if err := n.WaitConnected(ctx, IDs(nodes...)...); err != nil {
			t.Fatal(err)
		}
	}
}

// New starts one node for each name and connects all of them.
func New(t testing.TB, names ...string) []*p2p.Node {
	t.Helper()
	nodes := make([]*p2p.Node, 0, len(names))
	for _, name := range names {
		nodes = append(nodes, Node(t, name))
	}
	Connect(t, nodes...)
	return nodes
}
