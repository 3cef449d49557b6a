package server

import (
	"fmt"

	"github.com/psyche-go/psyche/net/frame"
)

// runError is why a run cannot go on.
type runError struct {
	runID string
	err   error
}

func (e *runError) Error() string { return fmt.Sprintf("run %s: %v", e.runID, e.err) }
func (e *runError) Unwrap() error { return e.err }

// start lets a run work. The caller holds mu.
func (s *server) start(h *host) {
	ctx := s.ctx
	s.working.Go(func() {
		if err := h.loop(ctx); err != nil {
			s.stopped(h, &runError{runID: h.runID, err: err})
		}
	})
}

// stopped ends what concerns a run that cannot go on. The others do, and without any the server
// ends.
func (s *server) stopped(h *host, reason *runError) {
	h.logger.Error("the run stops here", "error", reason.err)
	var trouble error = reason
	h.trouble.Store(&trouble)
	h.registry.shut(refuse(frame.RefusedShutdown, "the server cannot continue run %q; its operator must repair it", h.runID))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, reason)
	if len(s.failed) == len(s.runs) {
		s.fail(reason)
	}
}
