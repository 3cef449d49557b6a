package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/psyche-go/psyche/base/identity"
)

// requestTime is the time limit for receiving a request on a stream.
const requestTime = 5 * time.Second

// errRefused ends an exchange for which there is no slot.
var errRefused = errors.New("too many exchanges at once")

// A beginFunc reads a request and returns a function that answers it, or nil if there is nothing to
// answer. Reading costs the server little, but answering may cost much, so only answering needs a
// slot.
type (
	beginFunc  func(from identity.ID, s *pacedStream) (answerFunc, error)
	answerFunc func(ctx context.Context) error
)

// begin reads the first l.Request bytes of a stream, and then lets h read them from the stream
// again.
func (l StreamLimits) begin(h StreamHandler) beginFunc {
	return func(from identity.ID, s *pacedStream) (answerFunc, error) {
		request := make([]byte, l.Request)
		if _, err := io.ReadFull(s, request); err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
		return func(ctx context.Context) error { return h(ctx, from, &begunStream{s, request}) }, nil
	}
}

// begunStream is a stream whose first bytes have already been read.
type begunStream struct {
	Stream
	read []byte
}

func (s *begunStream) Read(p []byte) (int, error) {
	if len(s.read) == 0 {
		return s.Stream.Read(p)
	}
	n := copy(p, s.read)
	s.read = s.read[n:]
	return n, nil
}

// streamServer serves the streams of one protocol.
type streamServer struct {
	node   *Node
	name   string
	limits StreamLimits
	begin  beginFunc
	queue  *queue
}

// serve runs in a goroutine that libp2p created for the stream.
func (srv *streamServer) serve(s network.Stream) {
	leave, ok := srv.node.enter()
	if !ok {
		_ = s.Reset()
		return
	}
	defer leave()
	from, ok := Identity(s.Conn().RemotePeer())
	if !ok || !srv.node.Allows(s.Conn().RemotePeer()) {
		_ = s.ResetWithError(network.StreamGated)
		return
	}
	switch err := srv.exchange(from, memberStream{s}); {
	case err == nil:
		_ = s.Close()
	case errors.Is(err, errRefused):
		_ = s.ResetWithError(network.StreamResourceLimitExceeded)
	default:
		srv.node.logger.Debug("p2p: stream failed", "protocol", srv.name, "from", from.Short(), "err", err)
		_ = s.Reset()
	}
}

// exchange reads the request of s and answers it within the limits of the protocol.
func (srv *streamServer) exchange(from identity.ID, s deadlineStream) error {
	if !srv.queue.enter(from) {
		return errRefused
	}
	defer srv.queue.leave(from)
	return srv.contain(from, func() error {
		paced := newPacedStream(s, &srv.node.answering)
		defer func() {
			if paced.request > 0 {
				srv.node.requests.Free(from, paced.request)
			}
		}()
		if err := paced.until(time.Now().Add(requestTime)); err != nil {
			return err
		}
		answer, err := srv.begin(from, paced)
		if err != nil || answer == nil {
			return err
		}
		return srv.answer(from, paced, answer)
	})
}

// answer waits for a slot and answers.
func (srv *streamServer) answer(from identity.ID, s *pacedStream, answer answerFunc) (err error) {
	ctx, cancel := context.WithCancel(srv.node.ctx)
	defer cancel()
	p := &queuedExchange{from: from, slow: s.slow, end: func() {
		cancel()
		s.end()
	}}
	if !srv.queue.take(ctx, p) {
		return errRefused
	}
	defer func() {
		if evicted := srv.queue.release(p); evicted {
			err = errRefused
		}
	}()
	deadline := time.Now().Add(srv.limits.Timeout)
	ctx, cancelAnswer := context.WithDeadline(ctx, deadline)
	defer cancelAnswer()
	if err := s.until(deadline); err != nil {
		return err
	}
	return answer(ctx)
}

// contain runs the server of a stream and turns a panic into an error, because a message that
// causes a panic must not end the process.
func (srv *streamServer) contain(from identity.ID, serve func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			srv.node.logger.Error("p2p: handler panicked", "protocol", srv.name, "from", from.Short(),
				"panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("handler panicked: %v", p)
		}
	}()
	return serve()
}
