package p2p

import (
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// gater admits only members. An address does not identify a peer, so gater decides on incoming
// connections when the handshake has proved the key. mayDial decides on outgoing connections.
type gater struct{ n *Node }

func (g gater) InterceptPeerDial(p peer.ID) bool                    { return g.n.mayConnect(p) }
func (g gater) InterceptAddrDial(p peer.ID, addr ma.Multiaddr) bool { return g.n.mayDial(p, addr) }
func (g gater) InterceptAccept(network.ConnMultiaddrs) bool         { return true }

func (g gater) InterceptSecured(d network.Direction, p peer.ID, c network.ConnMultiaddrs) bool {
	if d == network.DirInbound {
		g.n.unproven.shownAt(c.RemoteMultiaddr())
	}
	return g.n.mayConnect(p)
}

func (g gater) InterceptUpgraded(c network.Conn) (bool, control.DisconnectReason) {
	return g.n.mayConnect(c.RemotePeer()), 0
}
