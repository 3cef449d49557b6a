package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/net/p2p"
)

const (
	// The library's default queues of 32 lose messages when all members send at the same time,
	// because each then forwards the messages of all others.
	validateQueue = 4096
	outboundQueue = 4096

	// Limits for one author. An honest member announces one result in a round, and repeats it every
	// two seconds until the witnesses have it. Messages above the limit are not forwarded.
	authorPerSecond = 20
	authorBurst     = 256
	// Limits for messages of one author that are older than its newest message. The limits are low,
	// because they lose nothing: an honest author repeats its messages.
	latePerSecond = 2
	lateBurst     = 32
	// overtaken is the number of newer messages that may arrive before a message while it still
	// counts as new. Messages take several paths, and their signatures are verified concurrently.
	overtaken = 64
	// Limits for messages that a peer sends and has also authored. Exceeding them is the peer's
	// fault, independent of other members. The burst covers messages that a link delays when it
	// stalls for half a minute.
	ownPerSecond = 2 * authorPerSecond
	ownBurst     = 4 * authorBurst
	// Limits for all messages through one peer. Exceeding them is not a fault, because the messages
	// of many authors may come through one peer. A third of the members of the largest run, which
	// is 256, cannot send this many for long.
	messagesPerSecond = 2000
	messagesBurst     = 8192
	// The last messagesForQuiet messages of that burst are reserved for quiet authors: authors that
	// have used at most 1/quietShare of the burst for one author.
	messagesForQuiet = messagesBurst / 2
	quietShare       = 8
	topicsPerPeer    = 32
)

var errFlood = errors.New("peer sends too much")

// router is the gossipsub instance of a node, shared by its topics.
type router struct {
	tracer
	node   *p2p.Node
	pubsub *pubsub.PubSub
	ctx    context.Context // ends with the node
	excess atomic.Uint64   // messages above their authors' limits

	mu     sync.Mutex
	peers  map[peer.ID]*budget
	topics map[string]struct{} // joined by this node
}

// budget contains one peer's limiters, which record how much of its limits the peer has used.
type budget struct {
	messages *rate.Limiter // all messages through it
	own      *rate.Limiter // messages that it sent as their author
	topics   map[string]struct{}

	// The following fields count the peer's messages as an author, whichever peer forwarded them.
	// Any peer can send old messages again, so old messages do not use the limit of new ones. A
	// sequence number does not show the age of its message, because the library numbers messages
	// from the time at which it was started.
	newest uint64        // sequence number
	fresh  *rate.Limiter // messages with a new highest number, or fewer than overtaken numbers below the highest
	late   *rate.Limiter // all other messages
}

// limiter returns the limiter for a message of the author with the given sequence number. 0 stands
// for a message without a valid number.
func (b *budget) limiter(number uint64) *rate.Limiter {
	if number > b.newest || number > 0 && b.newest-number < overtaken {
		return b.fresh
	}
	return b.late
}

func routerOf(n *p2p.Node) (*router, error) {
	service, err := n.Service("gossip", func(ctx context.Context, h host.Host) (any, error) {
		r := &router{node: n, ctx: ctx, peers: make(map[peer.ID]*budget), topics: make(map[string]struct{})}
		r.tracer.penalise = r.penalise
		var err error
		r.pubsub, err = pubsub.NewGossipSub(ctx, announcingHost{h, r},
			pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
			// Without this option, a message published before the first heartbeat after joining
			// would go to an empty mesh and be lost without an error.
			pubsub.WithFloodPublish(true),
			pubsub.WithPeerFilter(func(p peer.ID, _ string) bool { return n.Allows(p) }),
			pubsub.WithAppSpecificRpcInspector(r.inspect),
			pubsub.WithSubscriptionFilter(r),
			pubsub.WithValidateQueueSize(validateQueue),
			pubsub.WithPeerOutboundQueueSize(outboundQueue),
			pubsub.WithRawTracer(&r.tracer),
			pubsub.WithPeerScore(peerScore(n)),
		)
		if err != nil {
			return nil, err
		}
		go r.repair(h)
		return r, nil
	})
	if err != nil {
		return nil, err
	}
	return service.(*router), nil
}

// inspect checks a packet before any of its signatures is verified.
func (r *router) inspect(from peer.ID, rpc *pubsub.RPC) error {
	if !r.node.Allows(from) {
		return p2p.ErrNotMember
	}
	own := 0
	for _, m := range rpc.GetPublish() {
		if size := m.Size(); len(m.GetData()) > MaxMessage || size > maxEnvelope {
			r.penalise(from, p2p.FaultInvalid, fmt.Sprintf("gossip message of %d bytes", size))
			return fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
		}
		if peer.ID(m.GetFrom()) == from {
			own++
		}
	}
	if !r.speaks(from, own) {
		r.penalise(from, p2p.FaultFlood, "too many gossip messages of its own")
		return errFlood
	}
	messages := len(rpc.GetPublish())
	rpc.Publish = r.sift(from, rpc.GetPublish()) // the rest of the packet needs no limit, because it costs almost nothing
	r.dropped.Add(uint64(messages - len(rpc.GetPublish())))
	return nil
}

// speaks counts messages that a peer sent as their author, and reports whether the peer is within
// its limits.
func (r *router) speaks(from peer.ID, own int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return own == 0 || r.budget(from).own.AllowN(time.Now(), own)
}

// sift counts messages that came through a peer and returns the messages within the peer's limits.
// If the limit is nearly reached, sift first drops messages of authors that send much. It does not
// count a message against its author, because the signature is verified later.
func (r *router) sift(from peer.ID, messages []*pb.Message) []*pb.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, through := time.Now(), r.budget(from).messages
	return slices.DeleteFunc(messages, func(m *pb.Message) bool {
		if through.TokensAt(now) <= messagesForQuiet && !r.quiet(now, peer.ID(m.GetFrom()), m.GetSeqno()) {
			return true
		}
		return !through.AllowN(now, 1)
	})
}

// quiet reports whether an author has sent little recently. It is false for an author that is not a
// member. The caller must hold r.mu.
func (r *router) quiet(now time.Time, author peer.ID, seqno []byte) bool {
	b, known := r.peers[author]
	if !known {
		return r.node.Allows(author)
	}
	l := b.limiter(numberOf(seqno))
	return l.TokensAt(now) >= float64(l.Burst()-l.Burst()/quietShare)
}

// admits counts a signed message of an author, once, and reports whether the author is within its
// limits.
func (r *router) admits(author peer.ID, seqno []byte) bool {
	number := numberOf(seqno)
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.budget(author)
	l := b.limiter(number)
	b.newest = max(b.newest, number)
	return l.Allow()
}

// numberOf returns a sequence number, or 0 if it is invalid.
func numberOf(seqno []byte) uint64 {
	if len(seqno) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(seqno)
}

func (r *router) penalise(p peer.ID, fault p2p.Fault, detail string) {
	if id, ok := p2p.Identity(p); ok {
		r.node.Penalise(id, fault, detail)
	}
}

// budget returns the budget of a peer. When the map has grown large, it removes the budgets of
// former members. The caller must hold r.mu.
func (r *router) budget(p peer.ID) *budget {
	b, ok := r.peers[p]
	if ok {
		return b
	}
	if len(r.peers) >= 512 {
		for other := range r.peers {
			if !r.node.Allows(other) {
				delete(r.peers, other)
			}
		}
	}
	b = &budget{
		messages: rate.NewLimiter(messagesPerSecond, messagesBurst),
		own:      rate.NewLimiter(ownPerSecond, ownBurst),
		fresh:    rate.NewLimiter(authorPerSecond, authorBurst),
		late:     rate.NewLimiter(latePerSecond, lateBurst),
		topics:   make(map[string]struct{}),
	}
	r.peers[p] = b
	return b
}

// CanSubscribe permits the node's own topics.
func (r *router) CanSubscribe(topic string) bool { return len(topic) <= maxTopicName }

// FilterIncomingSubscriptions limits the number of topics that a peer can make this node store.
func (r *router) FilterIncomingSubscriptions(from peer.ID, options []*pb.RPC_SubOpts) ([]*pb.RPC_SubOpts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	topics := r.budget(from).topics
	accepted := make([]*pb.RPC_SubOpts, 0, min(len(options), topicsPerPeer))
	for _, option := range options {
		topic := option.GetTopicid()
		if len(topic) > maxTopicName {
			continue
		}
		_, known := topics[topic]
		switch {
		case !option.GetSubscribe():
			delete(topics, topic)
		case !known && len(topics) >= topicsPerPeer:
			continue
		default:
			topics[topic] = struct{}{}
		}
		accepted = append(accepted, option)
	}
	return accepted, nil
}

// tracer counts the messages that the library drops without an error, and penalises peers that send
// messages an honest member never sends.
type tracer struct {
	dropped  atomic.Uint64
	penalise func(p peer.ID, fault p2p.Fault, detail string)
}

func (t *tracer) UndeliverableMessage(*pubsub.Message) { t.dropped.Add(1) }

func (t *tracer) DropRPC(rpc *pubsub.RPC, _ peer.ID) { t.dropped.Add(uint64(len(rpc.GetPublish()))) }

func (t *tracer) RejectMessage(m *pubsub.Message, reason string) {
	switch reason {
	case pubsub.RejectValidationQueueFull, pubsub.RejectValidationThrottled:
		t.dropped.Add(1)
	case pubsub.RejectMissingSignature, pubsub.RejectInvalidSignature, pubsub.RejectUnexpectedAuthInfo,
		pubsub.RejectUnexpectedSignature, pubsub.RejectValidationFailed:
		t.penalise(m.ReceivedFrom, p2p.FaultInvalid, "gossip: "+reason)
	}
}

func (t *tracer) OnNewOutboundStream(peer.ID, protocol.ID) {}
func (t *tracer) OnClosedOutboundStream(peer.ID)           {}
func (t *tracer) Join(string)                              {}
func (t *tracer) Leave(string)                             {}
func (t *tracer) Graft(peer.ID, string)                    {}
func (t *tracer) Prune(peer.ID, string)                    {}
func (t *tracer) ValidateMessage(*pubsub.Message)          {}
func (t *tracer) DeliverMessage(*pubsub.Message)           {}
func (t *tracer) DuplicateMessage(*pubsub.Message)         {}
func (t *tracer) ThrottlePeer(peer.ID)                     {}
func (t *tracer) RecvRPC(*pubsub.RPC)                      {}
func (t *tracer) SendRPC(*pubsub.RPC, peer.ID)             {}
