package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/record"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/psyche-go/psyche/base/identity"
)

const (
	// peersProtocol asks a member for the addresses of other peers. The request is a list of ids of
	// 32 bytes. The response contains, for each known peer and in any order, a length (uint16,
	// big-endian) and the signed peer record in libp2p's encoding.
	peersProtocol = "/psyche/peers/1"

	maxPeersAsked = 32
	maxRecordSize = 4 << 10
	askPeers      = 3                // number of members to ask for another member's addresses
	askEvery      = 10 * time.Second // pause before asking about the same member again
	askTimeout    = 5 * time.Second

	mdnsService = "_psyche._udp"
)

var errRecord = errors.New("unusable peer record")

// servePeers serves the addresses of members: the signed records that the members sent when they
// connected.
func (n *Node) servePeers() {
	n.Handle(peersProtocol, maxPeersAsked*identity.IDSize, func(_ context.Context, _ identity.ID, request []byte) ([]byte, error) {
		if len(request)%identity.IDSize != 0 {
			return nil, fmt.Errorf("%w: %d bytes, want a multiple of the size of an id", errMalformed, len(request))
		}
		book, ok := peerstore.GetCertifiedAddrBook(n.host.Peerstore())
		if !ok {
			return nil, nil
		}
		var response []byte
		for id := range slices.Chunk(request, identity.IDSize) {
			p, err := PeerID(identity.ID(id))
			if err != nil || !n.Allows(p) {
				continue
			}
			envelope := book.GetPeerRecord(p)
			if envelope == nil {
				continue
			}
			raw, err := envelope.Marshal()
			if err != nil || len(raw) > maxRecordSize {
				continue
			}
			response = binary.BigEndian.AppendUint16(response, uint16(len(raw)))
			response = append(response, raw...)
		}
		return response, nil
	})
}

// askWhere asks some connected members for the addresses of a member that could not be reached.
func (n *Node) askWhere(ctx context.Context, m *member) {
	n.mu.Lock()
	due := time.Since(m.lastRequest) >= askEvery
	if due {
		m.lastRequest = time.Now()
	}
	n.mu.Unlock()
	if !due {
		return
	}
	requests := 0
	for _, id := range n.Connected() {
		if requests == askPeers || ctx.Err() != nil {
			return
		}
		if id == m.id || n.Avoids(id) {
			continue
		}
		requests++
		if err := n.askAbout(ctx, id, m); err != nil {
			n.logger.Debug("p2p: cannot ask for a member's addresses", "member", m.id.Short(), "asked", id.Short(), "err", err)
		}
	}
}

func (n *Node) askAbout(ctx context.Context, id identity.ID, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	response, err := n.Request(ctx, id, peersProtocol, m.id[:], 2+maxRecordSize)
	if err != nil || len(response) == 0 {
		return err
	}
	r, err := openAnswer(m.peerID, response)
	if err != nil {
		n.Penalise(id, FaultInvalid, "answer to "+peersProtocol)
		return err
	}
	n.learn(m.peerID, r.Addrs, r.Seq)
	return nil
}

// openAnswer decodes the answer about one member: its record, preceded by the record's length.
func openAnswer(p peer.ID, response []byte) (*peer.PeerRecord, error) {
	if len(response) < 2 {
		return nil, fmt.Errorf("%w: %d bytes", errRecord, len(response))
	}
	if size := int(binary.BigEndian.Uint16(response)); size+2 != len(response) {
		return nil, fmt.Errorf("%w: %d bytes, want %d", errRecord, len(response)-2, size)
	}
	return openRecord(p, response[2:])
}

// openRecord verifies that p has signed raw.
func openRecord(p peer.ID, raw []byte) (*peer.PeerRecord, error) {
	envelope, rec, err := record.ConsumeEnvelope(raw, peer.PeerRecordEnvelopeDomain)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	r, ok := rec.(*peer.PeerRecord)
	if !ok || r.PeerID != p || !p.MatchesPublicKey(envelope.PublicKey) {
		return nil, fmt.Errorf("%w: the record belongs to another peer", errRecord)
	}
	return r, nil
}

// learn adds addresses of a member from a source other than the list of members. They replace
// earlier learned addresses unless seq is older.
func (n *Node) learn(p peer.ID, addrs []ma.Multiaddr, seq uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.members[p]
	if m == nil || seq < m.seq {
		return
	}
	var direct []ma.Multiaddr
	var vias []peer.ID
	for _, addr := range addrs[:min(len(addrs), 4*maxAddrs)] {
		transport, _ := peer.SplitAddr(addr)
		if via, ok := viaOf(addr); ok && (n.isAllowed(via) || n.relays.isStatic(via)) && !slices.Contains(vias, via) {
			vias = append(vias, via)
		} else if (isTCP(transport) || isQUIC(transport)) && len(direct) < maxAddrs {
			direct = append(direct, transport)
		}
	}
	if slices.EqualFunc(direct, m.learned, ma.Multiaddr.Equal) && slices.Equal(vias, m.vias) {
		return
	}
	m.learned, m.vias, m.seq, m.renewed = direct, vias[:min(len(vias), relaysTried)], seq, true
	m.signal()
}

// viaOf returns the relay in an address that contains one.
func viaOf(addr ma.Multiaddr) (peer.ID, bool) {
	if !isCircuit(addr) {
		return "", false
	}
	text, err := addr.ValueForProtocol(ma.P_P2P)
	if err != nil {
		return "", false
	}
	p, err := peer.Decode(text)
	return p, err == nil
}

// localDiscovery finds members in the local network by multicast DNS.
type localDiscovery struct{ n *Node }

// HandlePeerFound implements mdns.Notifee.
func (d localDiscovery) HandlePeerFound(info peer.AddrInfo) {
	d.n.learn(info.ID, info.Addrs, 0)
}

// discoverLocally announces the node in the local network by multicast DNS and listens for
// announcements. If that is not possible, the node works without local discovery.
func (n *Node) discoverLocally(h host.Host) func() {
	service := mdns.NewMdnsService(h, mdnsService, localDiscovery{n})
	if err := service.Start(); err != nil {
		n.logger.Warn("p2p: no discovery in the local network", "err", err)
		_ = service.Close()
		return func() {}
	}
	return func() { _ = service.Close() }
}
