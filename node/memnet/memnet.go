// Package memnet implements the peer-to-peer network of clients in one process, for tests and
// simulation. It uses no sockets and no goroutines, and can inject faults.
//
// The main type is Hub. Attach returns the Node of each client, which implements env.Network. A
// method delivers its messages and runs the handlers of their receivers on the caller's goroutine,
// before it returns.
package memnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/backend"
	"lukechampine.com/blake3"
)

// Errors of unsuccessful requests and fetches.
var (
	ErrUnreachable = errors.New("peer is not reachable")
	errNotHeld     = errors.New("no holder has the blob")
	errTooLarge    = errors.New("message is larger than allowed")
)

// Hub connects the nodes of one network. Its functions must be set before the first Attach and may
// be called from any goroutine.
type Hub struct {
	// DropGossip reports whether a message is lost; nil: no messages are lost.
	DropGossip func(from, to identity.ID, message []byte) bool
	// DropLink reports whether a request or fetch fails; nil: none fails.
	DropLink func(from, to identity.ID) bool
	// Stall reports whether fetches by from stall at the holder to: such a fetch waits until its ctx
	// is done. A stalling holder does not push results either. Nil: none stalls.
	Stall func(from, to identity.ID) bool

	mu    sync.Mutex
	nodes map[identity.ID]*Node
}

// Node is one client's end of the network.
type Node struct {
	hub *Hub
	id  identity.ID

	mu         sync.Mutex
	closed     bool
	members    []identity.ID
	handle     func(from identity.ID, message []byte) error
	subscribed context.Context // handle is called until it is done
	protocol   map[string]protocol
	blobs      map[[32]byte][]byte
	files      map[[32]byte]file // blobs that are not in memory
	sent       uint64
	received   uint64
}

type protocol struct {
	maxRequest int
	handle     func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)
}

// Attach connects a client. It replaces an earlier one with the same ID.
func (h *Hub) Attach(id identity.ID) *Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nodes == nil {
		h.nodes = make(map[identity.ID]*Node)
	}
	n := &Node{
		hub: h, id: id,
		protocol: make(map[string]protocol), blobs: make(map[[32]byte][]byte), files: make(map[[32]byte]file),
	}
	h.nodes[id] = n
	return n
}

// Close makes the node unreachable.
func (n *Node) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
}

// Addrs implements env.Peers.
func (n *Node) Addrs() []string { return []string{"/memory/" + n.id.String()} }

// SetMembers implements env.Peers.
func (n *Node) SetMembers(peers []backend.Peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.members = n.members[:0]
	for _, p := range peers {
		n.members = append(n.members, p.ID)
	}
}

// Bytes implements env.Peers.
func (n *Node) Bytes() (sent, received uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent, n.received
}

// BlobCount returns the number of blobs that the node holds.
func (n *Node) BlobCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.blobs)
}

// Publish implements env.Gossip.
func (n *Node) Publish(ctx context.Context, message []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n.mu.Lock()
	members := slices.Clone(n.members)
	n.mu.Unlock()
	for _, id := range members {
		peer := n.hub.peer(n.id, id, false)
		if peer == nil || n.hub.DropGossip != nil && n.hub.DropGossip(n.id, id, message) {
			continue
		}
		n.count(len(message), 0)
		peer.count(0, len(message))
		peer.deliver(n.id, slices.Clone(message))
	}
	return nil
}

func (n *Node) deliver(from identity.ID, message []byte) {
	n.mu.Lock()
	handle, subscribed := n.handle, n.subscribed
	n.mu.Unlock()
	if handle != nil && subscribed.Err() == nil {
		_ = handle(from, message) // this network does not forward messages
	}
}

// Subscribe implements env.Gossip.
func (n *Node) Subscribe(ctx context.Context, handle func(from identity.ID, message []byte) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handle, n.subscribed = handle, ctx
	return nil
}

// Request implements env.Requests.
func (n *Node) Request(ctx context.Context, to identity.ID, name string, request []byte, maxResponse int) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	peer := n.hub.peer(n.id, to, true)
	if peer == nil {
		return nil, fmt.Errorf("request %s: %w", name, ErrUnreachable)
	}
	peer.mu.Lock()
	p, known := peer.protocol[name]
	peer.mu.Unlock()
	switch {
	case !known:
		return nil, fmt.Errorf("request %s: %w", name, ErrUnreachable)
	case len(request) > p.maxRequest:
		return nil, fmt.Errorf("request %s: %w", name, errTooLarge)
	}
	if name == exchange.PushProtocol && n.hub.Stall != nil && n.hub.Stall(to, n.id) {
		return nil, fmt.Errorf("request %s: %w", name, ErrUnreachable)
	}
	response, err := p.handle(ctx, n.id, slices.Clone(request))
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", name, err)
	}
	if len(response) > maxResponse {
		return nil, fmt.Errorf("response to %s: %w", name, errTooLarge)
	}
	n.count(len(request), len(response))
	peer.count(len(response), len(request))
	return slices.Clone(response), nil
}

// Handle implements env.Requests.
func (n *Node) Handle(name string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.protocol[name] = protocol{maxRequest, handle}
}

// Put implements env.Blobs.
func (n *Node) Put(data []byte) ([32]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	hash := blake3.Sum256(data)
	n.blobs[hash] = data
	delete(n.files, hash)
	return hash, nil
}

// Keep implements env.Blobs.
func (n *Node) Keep(data []byte) ([32]byte, error) { return n.Put(data) }

// Lend implements env.Blobs.
func (n *Node) Lend(data []byte) ([32]byte, error) { return n.Put(data) }

// LendFrom implements env.Blobs.
func (n *Node) LendFrom(data *io.SectionReader, lost func(error)) ([32]byte, error) {
	hash, err := hashOf(data)
	if err != nil {
		return hash, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blobs[hash] = nil
	n.files[hash] = file{data, lost}
	return hash, nil
}

// file is the location of a blob on the disk.
type file struct {
	*io.SectionReader
	lost func(error)
}

// read returns the blob in a file, if it is unchanged.
func (f file) read(hash [32]byte) (data []byte, err error) {
	data = make([]byte, f.Size())
	if _, err = f.ReadAt(data, 0); err == nil && blake3.Sum256(data) != hash {
		err = errors.New("the file was changed")
	}
	return data, err
}

func hashOf(data *io.SectionReader) ([32]byte, error) {
	h := blake3.New(32, nil)
	_, err := io.Copy(h, io.NewSectionReader(data, 0, data.Size()))
	return [32]byte(h.Sum(nil)), err
}

// InFiles returns the number of blobs that are in files and not in memory.
func (n *Node) InFiles() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.files)
}

// Drop implements env.Blobs.
func (n *Node) Drop(hash [32]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.blobs, hash)
	delete(n.files, hash)
}

// Fetch implements env.Blobs.
func (n *Node) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	return n.fetch(ctx, hash, size, size, holders)
}

// FetchUpTo implements env.Blobs.
func (n *Node) FetchUpTo(ctx context.Context, hash [32]byte, maxSize uint64, holders []identity.ID) ([]byte, error) {
	return n.fetch(ctx, hash, 0, maxSize, holders)
}

func (n *Node) fetch(ctx context.Context, hash [32]byte, minSize, maxSize uint64, holders []identity.ID) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if data, held := n.get(hash); held {
		return data, nil
	}
	for _, id := range holders {
		peer := n.hub.peer(n.id, id, true)
		if peer == nil {
			continue
		}
		data, held := peer.get(hash)
		if !held || uint64(len(data)) < minSize || uint64(len(data)) > maxSize {
			continue
		}
		if n.hub.Stall != nil && n.hub.Stall(n.id, id) {
			<-ctx.Done()
			return nil, fmt.Errorf("fetch %x: %w", hash[:8], ctx.Err())
		}
		peer.count(len(data), 0)
		n.count(0, len(data))
		n.mu.Lock()
		defer n.mu.Unlock()
		n.blobs[hash] = data
		return data, nil
	}
	return nil, fmt.Errorf("fetch %x of %d bytes from %d holders: %w", hash[:8], maxSize, len(holders), errNotHeld)
}

func (n *Node) get(hash [32]byte) ([]byte, bool) {
	n.mu.Lock()
	data, held := n.blobs[hash]
	from, inFile := n.files[hash]
	n.mu.Unlock()
	if !inFile {
		return data, held
	}
	data, err := from.read(hash)
	if err == nil {
		return data, true
	}
	n.mu.Lock()
	_, inFile = n.files[hash]
	delete(n.blobs, hash)
	delete(n.files, hash)
	n.mu.Unlock()
	if inFile {
		from.lost(err)
	}
	return nil, false
}

func (n *Node) count(sent, received int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent += uint64(sent)
	n.received += uint64(received)
}

// admits reports whether the node is open and a client is one of its members.
func (n *Node) admits(id identity.ID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.closed && slices.Contains(n.members, id)
}

// peer returns the node of to, or nil if one of the two nodes does not admit the other. If link is
// set, it also returns nil if DropLink is true.
func (h *Hub) peer(from, to identity.ID, link bool) *Node {
	h.mu.Lock()
	a, b := h.nodes[from], h.nodes[to]
	h.mu.Unlock()
	if a == nil || b == nil || !a.admits(to) || !b.admits(from) {
		return nil
	}
	if link && h.DropLink != nil && h.DropLink(from, to) {
		return nil
	}
	return b
}
