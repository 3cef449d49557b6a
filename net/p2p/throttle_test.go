package p2p

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// silence is a stream that notes the longest time without a byte.
type silence struct {
	last    time.Time
	longest time.Duration
}

func (s *silence) Write(p []byte) (int, error) {
	s.longest = max(s.longest, time.Since(s.last))
	s.last = time.Now()
	return len(p), nil
}

// All streams that a member may have open share a slow line, and none is silent for as long
// as a holder may be.
func TestThrottledStreamsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{upload: newUploadLimiter(128 << 10)}
		streams := make([]silence, 16)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var tasks sync.WaitGroup
		for i := range streams {
			s := &streams[i]
			s.last = time.Now()
			tasks.Go(func() { _, _ = n.Throttle(ctx, s).Write(make([]byte, 4<<20)) })
		}
		tasks.Wait()
		for i := range streams {
			if streams[i].longest > 2500*time.Millisecond {
				t.Errorf("stream %d was silent for %v", i, streams[i].longest)
			}
		}
	})
}
