package p2p

import (
	"sync"
	"time"
)

const (
	// paceRate is what a member takes of an answer at the least, in bytes per second. It is
	// low because a slow line is shared by all that goes over it at the same time.
	paceRate = 16 << 10
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
	grace time.Duration // left

	mu       sync.Mutex // of what follows and of setting deadlines
	deadline time.Time
	ended    bool
	writing  time.Time     // since when a write waits for the other side; zero: none does
	waited   time.Duration // for the other side, by the writes before
	due      time.Duration // that what they wrote takes at slowRate
}

func newPacedStream(s deadlineStream) *pacedStream {
	return &pacedStream{deadlineStream: s, grace: paceGrace}
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
	due := time.Duration(len(piece)) * time.Second / paceRate
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
	s.writing = now
	return s.SetWriteDeadline(deadline)
}

// endWrite notes a write of n bytes and returns how long it took.
func (s *pacedStream) endWrite(n int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Since(s.writing)
	s.writing = time.Time{}
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
	if !s.writing.IsZero() {
		waited += time.Since(s.writing)
	}
	return waited > slowTime && waited > s.due
}
