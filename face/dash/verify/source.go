package verify

import "io"

// source is an io.Reader whose parts a second goroutine supplies. A part is processed when Read
// needs the next part.
type source struct {
	parts     chan []byte
	processed chan struct{}

	// Only the reading goroutine uses these fields.
	left []byte // unread rest of the newest part
	had  bool   // give waits for the end of the newest part
}

func newSource() *source {
	return &source{parts: make(chan []byte), processed: make(chan struct{})}
}

// give passes a part to the reader and waits until the reader has processed it. It reports false if
// stopped is closed first.
func (s *source) give(part []byte, stopped <-chan struct{}) bool {
	select {
	case s.parts <- part:
	case <-stopped:
		return false
	}
	select {
	case <-s.processed:
		return true
	case <-stopped:
		return false
	}
}

// end makes the next Read return io.EOF. The caller must not call give afterwards.
func (s *source) end() { close(s.parts) }

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	for len(s.left) == 0 {
		if s.had {
			s.had = false
			s.processed <- struct{}{}
		}
		part, more := <-s.parts
		if !more {
			return 0, io.EOF
		}
		s.left, s.had = part, true
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}
