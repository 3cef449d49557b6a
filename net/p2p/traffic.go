package p2p

import (
	"sync"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/psyche-go/psyche/base/identity"
)

// maxCountedPeers is the maximum number of peers whose bytes are counted separately. It suffices for
// the members of many epochs.
const maxCountedPeers = 4096

// traffic counts the bytes of each peer.
type traffic struct {
	mu    sync.RWMutex
	peers map[peer.ID]*carried
	rest  carried // sum over the peers beyond maxCountedPeers
}

type carried struct{ sent, received atomic.Uint64 }

// of returns the counters of a peer.
func (t *traffic) of(p peer.ID) *carried {
	t.mu.RLock()
	c := t.peers[p]
	t.mu.RUnlock()
	if c != nil {
		return c
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.peers[p]; c != nil {
		return c
	}
	if len(t.peers) >= maxCountedPeers {
		return &t.rest
	}
	if t.peers == nil {
		t.peers = make(map[peer.ID]*carried)
	}
	c = &carried{}
	t.peers[p] = c
	return c
}

// Traffic counts the bytes of all streams to and from a member since the node started.
type Traffic struct {
	ID             identity.ID
	Sent, Received uint64
	Relayed        bool // the member can be reached only through a relay
}

// Traffic returns the traffic of the connected members in ascending order of ID.
func (n *Node) Traffic() []Traffic {
	connected := n.Connected()
	out := make([]Traffic, 0, len(connected))
	for _, id := range connected {
		p, err := PeerID(id)
		if err != nil {
			continue
		}
		c := n.bytes.peers.of(p)
		out = append(out, Traffic{ID: id, Sent: c.sent.Load(), Received: c.received.Load(), Relayed: n.Relayed(id)})
	}
	return out
}
