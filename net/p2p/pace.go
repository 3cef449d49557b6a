package p2p

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// paceRate is the lowest rate at which a member may read an answer, in bytes per second, if this node writes
	// to no other stream: a member with a link of 0.25 Mbit/s reads from eight members at once. All streams share the
	// uplink, which may be the slower end: of linkRate, half of 0.25 Mbit/s, each has to take its share only.
	paceRate = 2 << 10
	linkRate = 16 << 10
	// paceGrace is how long a member may be behind that.
	paceGrace = 5 * time.Second
	// pacePiece is how much is written with one deadline.
	pacePiece = 64 << 10

	// A member that was waited for this long and took less than slowRate, in bytes per second,
	// gives way to one that has no place.
	slowTime = 10 * time.Second
	slowRate = 64 << 10
)

// deadlineStream is what is served: a stream of either kind.
type deadlineStream interface {
	Stream
	SetWriteDeadline(time.Time) error
}

// pacedStream is a stream that is being served. Its writes fail when the other side takes
// less than it should; time that passes between writes is nobody's fault but ours.
type pacedStream struct {
	deadlineStream
	grace   time.Duration // left
	writing *atomic.Int32 // writes of all streams of the node

	mu       sync.Mutex // of what follows and of setting deadlines
	deadline time.Time
	ended    bool
	since    time.Time     // when the running write began to wait for the other side; zero: none does
	waited   time.Duration // for the other side, by the writes before
	due      time.Duration // that what they wrote takes at slowRate
}

// newPacedStream returns a stream with full grace. Writing counts the writes of all streams that share the uplink.
func newPacedStream(s deadlineStream, writing *atomic.Int32) *pacedStream {
	return &pacedStream{deadlineStream: s, grace: paceGrace, writing: writing}
}

// dueTime returns how long the other side may take for a write of size bytes, in addition to its grace.
func dueTime(size int, writers int32) time.Duration {
	rate := min(paceRate, max(linkRate/int64(max(writers, 1)), 1))
	return time.Duration(int64(size) * int64(time.Second) / rate)
}

// until sets the end of whatever is done with the stream.
func (s *pacedStream) until(deadline time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errRefused
	}
	s.deadline = deadline
	return s.SetDeadline(deadline)
}

// end makes reading and writing fail from now on. Unlike Reset it never waits.
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

// beginWrite gives the next write some time.
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

// endWrite notes a write of n bytes and returns how long it took.
func (s *pacedStream) endWrite(n int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Since(s.since)
	s.since = time.Time{}
	s.waited += took
	s.due += time.Duration(n) * time.Second / slowRate
	return took
}

// slow reports whether the other side takes so little that it is to give way to members that
// have no place. It never waits for the other side.
func (s *pacedStream) slow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waited := s.waited
	if !s.since.IsZero() {
		waited += time.Since(s.since)
	}
	return waited > slowTime && waited > s.due
}
