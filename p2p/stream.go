package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/psyche-go/psyche/identity"
)

// ErrBusy says that the other side has too many streams of this kind open and refused
// another one; try later or elsewhere.
var ErrBusy = errors.New("peer is busy")

// Stream is a bidirectional byte stream between two members. Reset ends both directions
// and tells the other side that something is wrong; CloseWrite ends ours.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
	Reset() error
	SetDeadline(time.Time) error
}

// StreamLimits bound what a protocol may cost its server.
type StreamLimits struct {
	PerPeer int           // streams of one member at the same time; more are refused
	Total   int           // streams served at the same time; more wait for their turn
	Timeout time.Duration // from arrival of a stream until it is reset
}

// StreamHandler serves one stream from a member. ctx ends with the stream's deadline and
// with the node. The stream is closed after nil and reset after an error or a panic.
type StreamHandler func(ctx context.Context, from identity.ID, s Stream) error

// HandleStream serves a protocol. It replaces an earlier handler of the same protocol.
func (n *Node) HandleStream(name string, limits StreamLimits, h StreamHandler) {
	n.handleStream(name, limits, h)
	n.bulk.serve(name, nil)
}

func (n *Node) handleStream(name string, limits StreamLimits, h StreamHandler) *streamServer {
	server := &streamServer{
		node:   n,
		name:   name,
		limits: limits,
		handle: h,
		slots:  make(chan struct{}, limits.Total),
		peers:  make(map[identity.ID]int),
	}
	n.host.SetStreamHandler(protocol.ID(name), server.serve)
	return server
}

// OpenStream opens a stream to a member, connecting first if need be. The deadline of
// ctx, if it has one, becomes the stream's; the end of ctx does not reset the stream.
func (n *Node) OpenStream(ctx context.Context, to identity.ID, name string) (Stream, error) {
	p, err := PeerID(to)
	if err != nil {
		return nil, err
	}
	if !n.Allows(p) || p == n.peerID {
		return nil, fmt.Errorf("open %s stream to %s: %w", name, to.Short(), ErrNotMember)
	}
	connected := n.isConnected(p)
	s, err := n.host.NewStream(ctx, p, protocol.ID(name))
	if err != nil && connected && ctx.Err() == nil {
		// A connection that the other side refused, or that has died, looks like one until
		// its first stream fails.
		s, err = n.host.NewStream(ctx, p, protocol.ID(name))
	}
	if err != nil {
		return nil, fmt.Errorf("open %s stream to %s: %w", name, to.Short(), streamError(err))
	}
	deadline, ok := ctx.Deadline()
	if ok {
		if err := s.SetDeadline(deadline); err != nil {
			_ = s.Reset()
			return nil, fmt.Errorf("open %s stream to %s: %w", name, to.Short(), err)
		}
	}
	return memberStream{s}, nil
}

// memberStream is a libp2p stream whose errors are ours where that matters.
type memberStream struct{ network.Stream }

func (s memberStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	return n, streamError(err)
}

func (s memberStream) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	return n, streamError(err)
}

func streamError(err error) error {
	if reset, ok := errors.AsType[*network.StreamError](err); ok && reset.Remote &&
		reset.ErrorCode == network.StreamResourceLimitExceeded {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}

// streamServer serves the streams of one protocol.
type streamServer struct {
	node   *Node
	name   string
	limits StreamLimits
	handle StreamHandler
	slots  chan struct{}

	mu    sync.Mutex
	peers map[identity.ID]int // streams by member, never zero
}

// serve runs in a goroutine that libp2p made for the stream.
func (v *streamServer) serve(s network.Stream) {
	leave, ok := v.node.enter()
	if !ok {
		_ = s.Reset()
		return
	}
	defer leave()
	from, ok := Identity(s.Conn().RemotePeer())
	if !ok || !v.node.Allows(s.Conn().RemotePeer()) {
		_ = s.ResetWithError(network.StreamGated)
		return
	}
	switch err := v.exchange(from, memberStream{s}); {
	case err == nil:
		_ = s.Close()
	case errors.Is(err, errRefused):
		_ = s.ResetWithError(network.StreamResourceLimitExceeded)
	default:
		v.node.logger.Debug("p2p: stream failed", "protocol", v.name, "from", from.Short(), "err", err)
		_ = s.Reset()
	}
}

// errRefused is the end of an exchange that there was no room for.
var errRefused = errors.New("too many exchanges at once")

// exchange lets the handler serve s within the limits of the protocol.
func (v *streamServer) exchange(from identity.ID, s Stream) error {
	if !v.acquire(from) {
		return errRefused
	}
	defer v.release(from)
	deadline := time.Now().Add(v.limits.Timeout)
	ctx, cancel := context.WithDeadline(v.node.ctx, deadline)
	defer cancel()
	if err := v.wait(ctx); err != nil {
		return errRefused
	}
	defer func() { <-v.slots }()
	if err := s.SetDeadline(deadline); err != nil {
		return err
	}
	return v.contain(ctx, from, s)
}

// contain runs the handler and turns a panic into an error: a message that trips a
// handler must not end the process.
func (v *streamServer) contain(ctx context.Context, from identity.ID, s Stream) (err error) {
	defer func() {
		if p := recover(); p != nil {
			v.node.logger.Error("p2p: handler panicked", "protocol", v.name, "from", from.Short(),
				"panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("handler panicked: %v", p)
		}
	}()
	return v.handle(ctx, from, s)
}

func (v *streamServer) acquire(from identity.ID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.peers[from] >= v.limits.PerPeer {
		return false
	}
	v.peers[from]++
	return true
}

func (v *streamServer) release(from identity.ID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.peers[from]--; v.peers[from] == 0 {
		delete(v.peers, from)
	}
}

func (v *streamServer) wait(ctx context.Context) error {
	select {
	case v.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
