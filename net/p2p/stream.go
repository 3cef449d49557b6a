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
	// ErrBusy says that the other side has no room for this stream, or needed its place for a
	// member that has fewer; try later or elsewhere.
	ErrBusy = errors.New("peer is busy")
	// ErrHungUp says that the other side ended a connection of OpenBulk. It has no other way
	// to say that it is busy, so this may mean that or anything; a stream would tell.
	ErrHungUp = errors.New("peer hung up")
)

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
	Total   int           // streams served at the same time; more wait for their turn, but not for long
	Timeout time.Duration // of serving one stream
	// Request is how many bytes every stream begins with. A stream is served, and counts in
	// Total, only after they have arrived, for which it has some seconds; the handler reads
	// them from the stream.
	Request int
}

// StreamHandler serves one stream from a member. ctx ends with the stream's deadline, with
// the node, and when the place is needed: for a member that has fewer or, from one that takes
// little, for a member that has none. Writes end when the member takes next to nothing. The
// stream is closed after nil and reset after an error or a panic.
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
