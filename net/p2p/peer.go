package p2p

import (
	"errors"
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/psyche-go/psyche/base/identity"
)

// Limits of the addresses of one member.
const (
	maxAddrs    = 16  // maximum number of addresses of one member; more are ignored
	maxAddrSize = 256 // bytes of one address in text form
)

// errAddress means that an address cannot be used: it is not a multiaddr, not QUIC or TCP, or
// belongs to another peer.
var errAddress = errors.New("unusable peer address")

// Peer is a member of the run with its multiaddrs, for example /ip4/192.0.2.7/udp/4001/quic-v1. A
// member without addresses may connect to this node, but this node cannot dial it.
type Peer struct {
	ID    identity.ID
	Addrs []string
	Waits bool // the peer has no seat in the run
}

// PeerID returns the libp2p peer ID of an identity: the public key itself, as an identity
// multihash.
func PeerID(id identity.ID) (peer.ID, error) {
	key, err := crypto.UnmarshalEd25519PublicKey(id[:])
	if err != nil {
		return "", fmt.Errorf("peer id of %s: %w", id.Short(), err)
	}
	return peer.IDFromPublicKey(key)
}

// Identity returns the ed25519 public key of a libp2p peer ID. ok is false if the ID contains
// another kind of key or only its hash.
func Identity(p peer.ID) (identity.ID, bool) {
	key, err := p.ExtractPublicKey()
	if err != nil || key.Type() != crypto.Ed25519 {
		return identity.ID{}, false
	}
	raw, err := key.Raw()
	if err != nil || len(raw) != identity.IDSize {
		return identity.ID{}, false
	}
	return identity.ID(raw), true
}

// parseAddr parses one address of the peer p. A /p2p suffix must name p and is removed.
func parseAddr(p peer.ID, text string) (ma.Multiaddr, error) {
	if len(text) > maxAddrSize {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", errAddress, len(text), maxAddrSize)
	}
	addr, err := ma.NewMultiaddr(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", errAddress, text, err)
	}
	transport, named := peer.SplitAddr(addr)
	if named != "" && named != p {
		return nil, fmt.Errorf("%w: %q names another peer", errAddress, text)
	}
	if !isTCP(transport) && !isQUIC(transport) {
		return nil, fmt.Errorf("%w: %q is neither tcp nor quic-v1", errAddress, text)
	}
	return transport, nil
}

// isTCP reports whether addr is exactly host/tcp/port.
func isTCP(addr ma.Multiaddr) bool {
	return len(addr) == 2 && isHost(addr[0]) && addr[1].Protocol().Code == ma.P_TCP
}

// isQUIC reports whether addr is exactly host/udp/port/quic-v1.
func isQUIC(addr ma.Multiaddr) bool {
	return len(addr) == 3 && isHost(addr[0]) &&
		addr[1].Protocol().Code == ma.P_UDP && addr[2].Protocol().Code == ma.P_QUIC_V1
}

// isCircuit reports whether addr leads through a relay.
func isCircuit(addr ma.Multiaddr) bool {
	return slices.ContainsFunc(addr, func(c ma.Component) bool { return c.Protocol().Code == ma.P_CIRCUIT })
}

func isHost(c ma.Component) bool {
	switch c.Protocol().Code {
	case ma.P_IP4, ma.P_IP6, ma.P_DNS, ma.P_DNS4, ma.P_DNS6:
		return true
	}
	return false
}
