package p2p

import (
	"context"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/psyche-go/psyche/identity"
)

// Transports names the transport of every connection to id.
func Transports(n *Node, id identity.ID) []string {
	p, err := PeerID(id)
	if err != nil {
		return nil
	}
	var names []string
	for _, c := range n.host.Network().ConnsToPeer(p) {
		name := "tcp"
		if _, err := c.RemoteMultiaddr().ValueForProtocol(ma.P_QUIC_V1); err == nil {
			name = "quic"
		}
		names = append(names, name)
	}
	return names
}

// WaitDisconnected returns when n has no connection to id.
func WaitDisconnected(ctx context.Context, n *Node, id identity.ID) error {
	p, err := PeerID(id)
	for err == nil {
		n.mu.Lock()
		changed := n.changed
		n.mu.Unlock()
		if !n.isConnected(p) {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

// AskAbout asks a member where another one is.
func AskAbout(n *Node, id, about identity.ID) {
	p, _ := PeerID(about)
	n.mu.Lock()
	m := n.members[p]
	n.mu.Unlock()
	_ = n.askAbout(n.ctx, id, m)
}
