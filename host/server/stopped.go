package server

import (
	"fmt"

	"github.com/psyche-go/psyche/net/frame"
)

// runError is the reason why a run stopped.
type runError struct {
	runID string
	err   error
}

func (e *runError) Error() string { return fmt.Sprintf("run %s: %v", e.runID, e.err) }
func (e *runError) Unwrap() error { return e.err }

// start starts the loop of a run. The caller holds mu.
func (s *server) start(h *host) {
	ctx := s.ctx
	s.working.Go(func() {
		if err := h.loop(ctx); err != nil {
			s.stopped(h, &runError{runID: h.runID, err: err})
		}
	})
}

// stopped cleans up after a run that cannot continue. Other runs continue. Without any runs, the
// server ends.
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
