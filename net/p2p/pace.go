package p2p

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// paceRate is the lowest rate at which a member must read an answer, in bytes per second, if
	// this node writes to no other stream. It allows for a member with a link of 0.25 Mbit/s that
	// reads from eight members at the same time. All streams of this node share its uplink, which
	// may be the slower side. With several streams, a member must therefore read only its share of
	// linkRate, which is half of 0.25 Mbit/s.
	paceRate = 2 << 10
	linkRate = 16 << 10
	// paceGrace is how far a member's reading may be behind this rate, as a time.
	paceGrace = 5 * time.Second
	// pacePiece is the number of bytes written with one deadline.
	pacePiece = 64 << 10

	// A member that has made this node wait for at least slowTime, and that has read more slowly
	// than slowRate (in bytes per second), can be evicted for a member without a slot.
	slowTime = 10 * time.Second
	slowRate = 64 << 10
)

// deadlineStream is a stream that is being served: an ordinary stream or one on a bulk connection.
type deadlineStream interface {
	Stream
	SetWriteDeadline(time.Time) error
}

// pacedStream is a stream that is being served. Its writes fail if the other side reads too slowly.
// Time between two writes does not count.
type pacedStream struct {
	deadlineStream
	grace   time.Duration // remaining grace
	writing *atomic.Int32 // current writes of all streams of the node
	request int           // bytes that its request occupies in the node's memory for requests

	mu       sync.Mutex // guards the following fields and setting deadlines
	deadline time.Time
	ended    bool
	since    time.Time     // when the current write started to wait for the other side; zero: no write
	waited   time.Duration // total wait for the other side in previous writes
	due      time.Duration // time that the bytes of previous writes take at slowRate
}

// newPacedStream returns a stream with full grace. writing counts the writes of all streams that
// share the uplink.
func newPacedStream(s deadlineStream, writing *atomic.Int32) *pacedStream {
	return &pacedStream{deadlineStream: s, grace: paceGrace, writing: writing}
}

// dueTime returns how long the other side may take to read a write of size bytes, not counting its
// grace. writers is the number of concurrent writes of this node.
func dueTime(size int, writers int32) time.Duration {
	rate := min(paceRate, max(linkRate/int64(max(writers, 1)), 1))
	return time.Duration(int64(size) * int64(time.Second) / rate)
}

// until sets the deadline for all operations on the stream.
func (s *pacedStream) until(deadline time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errRefused
	}
	s.deadline = deadline
	return s.SetDeadline(deadline)
}

// end makes reading and writing fail from now on. Unlike Reset it never blocks.
func (s *pacedStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	_ = s.SetDeadline(time.Unix(1, 0))
}

func (s *pacedStream) Write(p []byte) (written int, err error) {
	for {
		piece := p[written:]
		piece = piece[:min(len(piece), pacePiece)]
		n, err := s.write(piece)
		if written += n; err != nil || written == len(p) {
			return written, err
		}
	}
}

func (s *pacedStream) write(piece []byte) (int, error) {
	due := dueTime(len(piece), s.writing.Add(1))
	defer s.writing.Add(-1)
	if err := s.beginWrite(s.grace + due); err != nil {
		return 0, err
	}
	n, err := s.deadlineStream.Write(piece)
	s.grace = min(s.grace+due-s.endWrite(n), paceGrace)
	return n, err
}

// beginWrite sets the time limit of the next write.
func (s *pacedStream) beginWrite(wait time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errRefused
	}
	now := time.Now()
	deadline := now.Add(wait)
	if s.deadline.Before(deadline) {
		deadline = s.deadline
	}
	s.since = now
	return s.SetWriteDeadline(deadline)
}

// endWrite records a write of n bytes and returns how long it took.
func (s *pacedStream) endWrite(n int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Since(s.since)
	s.since = time.Time{}
	s.waited += took
	s.due += time.Duration(n) * time.Second / slowRate
	return took
}

// slow reports whether the other side reads so slowly that it can be evicted for a member without a
// slot. It does not wait for the other side.
func (s *pacedStream) slow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waited := s.waited
	if !s.since.IsZero() {
		waited += time.Since(s.since)
	}
	return waited > slowTime && waited > s.due
}
