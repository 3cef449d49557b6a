package p2p

import (
	"sync"
	"time"
)

const (
	// paceRate is what a member takes of an answer at the least, in bytes per second. It is
	// low because a slow line is shared by all that goes over it at the same time.
	paceRate = 16 << 10
	// pacePatience is how long a member may be behind that.
	pacePatience = 5 * time.Second
	// pacePiece is how much is written with one deadline.
	pacePiece = 64 << 10
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
	patience time.Duration // left

	mu       sync.Mutex // of what follows and of setting deadlines
	deadline time.Time
	ended    bool
}

func newPacedStream(s deadlineStream) *pacedStream {
	return &pacedStream{deadlineStream: s, patience: pacePatience}
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
	if err := s.allow(s.patience + due); err != nil {
		return 0, err
	}
	begun := time.Now()
	n, err := s.deadlineStream.Write(piece)
	s.patience = min(s.patience+due-time.Since(begun), pacePatience)
	return n, err
}

// allow gives the next write some time.
func (s *pacedStream) allow(wait time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errRefused
	}
	deadline := time.Now().Add(wait)
	if s.deadline.Before(deadline) {
		deadline = s.deadline
	}
	return s.SetWriteDeadline(deadline)
}
