package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/psyche-go/psyche/base/identity"
)

// Errors of streams.
var (
	// ErrBusy means that the other side has no slot for this stream, or gave its slot to another
	// member. Try again later or with another member.
	ErrBusy = errors.New("peer is busy")
	// ErrHungUp means that the other side closed a connection of OpenBulk. It may have been busy,
	// because it cannot report that in another way, or it may have failed. On a stream it would send
	// the reason.
	ErrHungUp = errors.New("peer hung up")
)

// Stream is a bidirectional byte stream between two members. Reset ends both directions and signals
// an error to the other side. CloseWrite ends the direction to the other side.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
	Reset() error
	SetDeadline(time.Time) error
}

// StreamLimits bounds the resources that a protocol may use on the serving side.
type StreamLimits struct {
	PerPeer int           // concurrent streams of one member; more are refused
	Total   int           // streams served concurrently; more wait for a short time
	Timeout time.Duration // for serving one stream
	// Request is the number of bytes that every stream starts with. A stream is served, and counts
	// against Total, only after these bytes have arrived. The other side has a few seconds to send
	// them. The handler reads them from the stream as usual.
	Request int
}

// StreamHandler serves one stream from a member. ctx ends with the stream's deadline, with the node,
// or when the node needs the slot for another member: a member with fewer streams or, if this member
// reads slowly, a member without a stream. Writes fail if the member reads almost nothing. The
// stream is closed if the handler returns nil, and reset after an error or a panic.
type StreamHandler func(ctx context.Context, from identity.ID, s Stream) error

// HandleStream serves a protocol. It replaces an earlier handler of the same protocol.
func (n *Node) HandleStream(name string, limits StreamLimits, h StreamHandler) {
	n.handleStream(name, limits, limits.begin(h))
	n.bulk.serve(name, nil)
}

func (n *Node) handleStream(name string, limits StreamLimits, begin beginFunc) *streamServer {
	server := &streamServer{
		node:   n,
		name:   name,
		limits: limits,
		begin:  begin,
		queue:  newQueue(limits.PerPeer, limits.Total),
	}
	n.host.SetStreamHandler(protocol.ID(name), server.serve)
	return server
}

// OpenStream opens a stream to a member and connects first if necessary. The deadline of ctx, if
// any, becomes the deadline of the stream. The end of ctx does not reset the stream.
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
		// A connection that has died, or that the other side refused, seems to work until its first
		// stream fails.
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

// memberStream is a libp2p stream with some errors converted to errors of this package.
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
