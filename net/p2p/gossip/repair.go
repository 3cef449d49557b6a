package gossip

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// The gossipsub library announces its joined topics to a peer once, at the start of a stream. It
// opens that stream when the peer has been identified. Both the announcement and the stream can be
// lost permanently while the connection works:
//
//   - When the library's own stream to a peer ends, it forgets the topics of the peer. The peer's
//     stream to us may still work, because it belongs to another connection, or it may already have
//     been replaced. Then the peer has no reason to announce its topics again. This already happens
//     when two members dial each other at the same moment, and one of the connections is then closed.
//   - When the library cannot open a stream, it waits until the peer is identified again, and it
//     ignores an identification during the attempt. After four ended streams it gives up.
//
// Therefore we repeat both. The library ignores a repetition if nothing was lost.
const (
	repairEvery = 2 * time.Second
	// announceTimeout is how long writing an announcement to a stream may take before the stream
	// counts as dead. The library's own messages have the same limit.
	announceTimeout = 30 * time.Second
)

// repair notifies the library of connected members without a stream from this node, until the node
// ends.
func (r *router) repair(h host.Host) {
	ticker := time.NewTicker(repairEvery)
	defer ticker.Stop()
	dropped, excess := uint64(0), uint64(0) // counts that were already logged
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-ticker.C:
		}
		if now := r.dropped.Load(); now > dropped {
			r.node.Logger().Warn("gossip: messages were lost because too many came at once", "messages", now-dropped)
			dropped = now
		}
		if now := r.excess.Load(); now > excess {
			r.node.Logger().Warn("gossip: messages were ignored because their authors sent too many", "messages", now-excess)
			excess = now
		}
		if err := r.offerLost(h); err != nil {
			r.node.Logger().Debug("gossip: cannot offer members again", "err", err)
		}
	}
}

func (r *router) offerLost(h host.Host) error {
	known := make(map[peer.ID]struct{})
	for _, p := range r.pubsub.ListPeers("") {
		known[p] = struct{}{}
	}
	emitter, err := h.EventBus().Emitter(new(event.EvtPeerProtocolsUpdated))
	if err != nil {
		return err
	}
	defer func() { _ = emitter.Close() }()
	for _, p := range h.Network().Peers() {
		if _, ok := known[p]; ok || !r.node.Allows(p) || h.Network().Connectedness(p) != network.Connected {
			continue
		}
		// The protocols are unknown until the peer has been identified.
		protocols, err := h.Peerstore().SupportsProtocols(p, pubsub.GossipSubDefaultProtocols...)
		if err != nil {
			return fmt.Errorf("protocols of %s: %w", p, err)
		}
		if len(protocols) == 0 {
			continue
		}
		// Apart from an identification, only this event makes the library check a peer.
		if err := emitter.Emit(event.EvtPeerProtocolsUpdated{Peer: p, Added: protocols}); err != nil {
			return err
		}
	}
	return nil
}

// joined and left maintain the list of topics that the node announces. left is called before the
// library announces that we leave, so that no announcement of the topic can follow.
func (r *router) joined(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topics[topic] = struct{}{}
}

func (r *router) left(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.topics, topic)
}

// announcement returns a packet, with its length, that announces the joined topics; nil for none.
func (r *router) announcement() ([]byte, error) {
	r.mu.Lock()
	var rpc pb.RPC
	for topic := range r.topics {
		subscribe := true
		rpc.Subscriptions = append(rpc.Subscriptions, &pb.RPC_SubOpts{Topicid: &topic, Subscribe: &subscribe})
	}
	r.mu.Unlock()
	if len(rpc.Subscriptions) == 0 {
		return nil, nil
	}
	body, err := rpc.Marshal()
	if err != nil {
		return nil, err
	}
	return slices.Concat(binary.AppendUvarint(nil, uint64(len(body))), body), nil
}

// announcingHost is the host passed to the library. Streams that it opens announce the joined topics
// again from time to time.
type announcingHost struct {
	host.Host
	router *router
}

func (h announcingHost) NewStream(ctx context.Context, p peer.ID, protocols ...protocol.ID) (network.Stream, error) {
	s, err := h.Host.NewStream(ctx, p, protocols...)
	if err != nil {
		return nil, err
	}
	a := &announcingStream{Stream: s}
	ctx, a.cancel = context.WithCancel(h.router.ctx)
	a.throttled = h.router.node.ThrottleFirst(ctx, s)
	go a.run(ctx, h.router)
	return a, nil
}

// announcingStream is a stream to a peer on which the joined topics are announced from time to time.
// It relies on two properties of the library: it writes every packet with one call and ends every
// stream with Reset.
type announcingStream struct {
	network.Stream
	cancel    context.CancelFunc
	throttled io.Writer // the stream, limited to the node's upload rate

	mu      sync.Mutex // serializes packets
	greeted bool       // the library's first packet, which must precede all announcements, was written
}

func (s *announcingStream) Write(packet []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.greeted = true
	n, err := s.throttled.Write(packet)
	if err != nil {
		s.cancel() // part of the packet may have been written, so no other packet can follow
	}
	return n, err
}

func (s *announcingStream) Close() error {
	s.cancel()
	return s.Stream.Close()
}

func (s *announcingStream) Reset() error {
	s.cancel()
	return s.Stream.Reset()
}

func (s *announcingStream) run(ctx context.Context, r *router) {
	ticker := time.NewTicker(repairEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := s.announce(ctx, r); err != nil {
			_ = s.Reset() // end the stream, as in Write; the library notices and opens another stream
			return
		}
	}
}

func (s *announcingStream) announce(ctx context.Context, r *router) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.greeted || ctx.Err() != nil {
		return nil
	}
	packet, err := r.announcement() // under mu, see router.left
	if err != nil || packet == nil {
		return err
	}
	if err := s.SetWriteDeadline(time.Now().Add(announceTimeout)); err != nil {
		return err
	}
	_, err = s.throttled.Write(packet)
	return err
}
