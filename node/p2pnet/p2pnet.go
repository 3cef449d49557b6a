package p2pnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/blob"
	"github.com/psyche-go/psyche/net/p2p/gossip"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/backend"
)

// errNotSubscribed means that a message was published before Subscribe.
var errNotSubscribed = errors.New("not subscribed to the run's gossip")

// Network implements env.Network. Its methods may be called from any goroutine.
type Network struct {
	node  *p2p.Node
	store *blob.Store
	topic string

	mu     sync.Mutex
	joined *gossip.Topic // nil before Subscribe
}

var _ env.Network = (*Network)(nil)

// New serves the store's blobs on the node and returns the network of one run.
func New(node *p2p.Node, store *blob.Store, runID string) *Network {
	blob.Serve(node, store)
	return &Network{node: node, store: store, topic: "/psyche/run/1/" + runID}
}

// Addrs returns the multiaddrs at which peers reach the node.
func (n *Network) Addrs() []string { return n.node.Addrs() }

// SetMembers replaces the list of peers that may connect and that the node dials.
func (n *Network) SetMembers(peers []backend.Peer) {
	members := make([]p2p.Peer, len(peers))
	for i, peer := range peers {
		members[i] = p2p.Peer{ID: peer.ID, Addrs: peer.Addrs, Waits: peer.Waits}
	}
	n.node.SetMembers(members)
}

// Bytes returns the bytes sent and received since the start.
func (n *Network) Bytes() (sent, received uint64) { return n.node.Bytes() }

// Traffic returns the traffic of the connected members.
func (n *Network) Traffic() []p2p.Traffic { return n.node.Traffic() }

// Subscribe joins the run's gossip until ctx is done. It may be called once.
func (n *Network) Subscribe(ctx context.Context, handle func(from identity.ID, message []byte) error) error {
	topic, err := gossip.Join(ctx, n.node, n.topic, func(from identity.ID, message []byte) error {
		err := handle(from, message)
		if errors.Is(err, env.ErrUnasked) {
			return gossip.ErrIgnored
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.joined = topic
	return nil
}

// Publish gossips a message.
func (n *Network) Publish(ctx context.Context, message []byte) error {
	n.mu.Lock()
	topic := n.joined
	n.mu.Unlock()
	if topic == nil {
		return errNotSubscribed
	}
	return topic.Publish(ctx, message)
}

// Request sends a request to one member.
func (n *Network) Request(ctx context.Context, to identity.ID, protocol string, request []byte, maxResponse int) ([]byte, error) {
	return n.node.Request(ctx, to, protocol, request, maxResponse)
}

// Handle answers requests of members.
func (n *Network) Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	n.node.Handle(protocol, maxRequest, handle)
}

// Misbehaved penalises a member for a fault that the client has detected.
func (n *Network) Misbehaved(peer identity.ID, detail string) {
	n.node.Penalise(peer, p2p.FaultInvalid, detail)
}

// Put shares data. The caller must not modify it afterwards.
func (n *Network) Put(data []byte) ([32]byte, error) { return n.store.Put(data), nil }

// Keep is Put for data of another member, as far as it fits into the memory.
func (n *Network) Keep(data []byte) ([32]byte, error) {
	hash, err := n.store.Keep(data)
	if errors.Is(err, blob.ErrFull) {
		err = fmt.Errorf("%w: %w", err, env.ErrNoRoom)
	}
	return hash, err
}

// Lend is Put for data that the caller keeps in memory until Drop anyway.
func (n *Network) Lend(data []byte) ([32]byte, error) { return n.store.Lend(data), nil }

// LendFrom is Lend for data in a file of the caller.
func (n *Network) LendFrom(data *io.SectionReader, lost func(error)) ([32]byte, error) {
	return n.store.LendFrom(data, lost)
}

// Drop ends the sharing of a blob.
func (n *Network) Drop(hash [32]byte) { n.store.Drop(hash) }

// FreeDisk frees disk space for more important data, and returns the number of freed bytes. Shared
// parts that must be kept move from the disk to memory, as far as they fit.
func (n *Network) FreeDisk() int64 { return n.store.FreeDisk() }

// Fetch gets a blob from its holders and shares it.
func (n *Network) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	data, err := blob.Fetch(ctx, n.node, n.store, hash, size, holders)
	return n.retain(hash, data, err)
}

// FetchUpTo is Fetch for a blob of unknown size, at most maxSize bytes.
func (n *Network) FetchUpTo(ctx context.Context, hash [32]byte, maxSize uint64, holders []identity.ID) ([]byte, error) {
	data, err := blob.FetchUpTo(ctx, n.node, n.store, hash, maxSize, holders)
	return n.retain(hash, data, err)
}

// retain shares fetched data.
func (n *Network) retain(hash [32]byte, data []byte, err error) ([]byte, error) {
	switch {
	case errors.Is(err, blob.ErrFull):
		return nil, fmt.Errorf("%w: %w", err, env.ErrNoRoom)
	case err != nil:
		return nil, err
	}
	// If the store has no space to keep the data, other members get it from other holders.
	if err := n.store.Retain(hash); err != nil && !errors.Is(err, blob.ErrNotHeld) {
		return nil, err
	}
	return data, nil
}
