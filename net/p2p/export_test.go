package p2p

import (
	"context"
	"net"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/psyche-go/psyche/base/identity"
)

// MaxResponse is the maximum size of a response in bytes.
const MaxResponse = maxResponse

// Transports returns the transport of every connection to id.
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

// AskAbout asks a member for the address of another member.
func AskAbout(n *Node, id, about identity.ID) {
	p, _ := PeerID(about)
	n.mu.Lock()
	m := n.members[p]
	n.mu.Unlock()
	_ = n.askAbout(n.ctx, id, m)
}

// BulkConns returns the numbers of bulk connections that n has dialled and that it serves.
func BulkConns(n *Node) (dialled, served int) {
	n.bulk.mu.Lock()
	defer n.bulk.mu.Unlock()
	for c := range n.bulk.conns {
		if c.dialled {
			dialled++
		} else {
			served++
		}
	}
	return dialled, served
}

// DialBulk opens a bulk connection without checking the list of members.
func DialBulk(ctx context.Context, n *Node, to identity.ID, name string, addrs []string) error {
	p, err := PeerID(to)
	if err != nil {
		return err
	}
	c, err := n.bulk.dial(ctx, p, name, tcpOf(addrs))
	if err == nil {
		c.close()
	}
	return err
}

// DialTLSPort connects to the TCP port among addrs.
func DialTLSPort(t testing.TB, addrs []string) net.Conn {
	c, err := manet.Dial(tcpOf(addrs))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tcpOf(addrs []string) ma.Multiaddr {
	for _, text := range addrs {
		if addr := ma.StringCast(text); isTCP(addr) {
			return addr
		}
	}
	return nil
}

// FoundLocally passes addresses to n as if multicast DNS had found them.
func FoundLocally(n *Node, id identity.ID, addrs []string) {
	info := peer.AddrInfo{}
	info.ID, _ = PeerID(id)
	for _, text := range addrs {
		info.Addrs = append(info.Addrs, ma.StringCast(text))
	}
	localDiscovery{n}.HandlePeerFound(info)
}

// Learned returns the number of addresses of a member that n has learned.
func Learned(n *Node, id identity.ID) int {
	p, _ := PeerID(id)
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.members[p]; m != nil {
		return len(m.learned)
	}
	return 0
}
