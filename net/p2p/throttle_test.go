package p2p

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// silence is a stream that records the longest time without a byte.
type silence struct {
	last    time.Time
	longest time.Duration
}

func (s *silence) Write(p []byte) (int, error) {
	s.longest = max(s.longest, time.Since(s.last))
	s.last = time.Now()
	return len(p), nil
}

// TestThrottledStreamsTakeTurns checks that the maximum number of streams of a member can share a
// slow link without a stream being silent for longer than permitted.
func TestThrottledStreamsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{uploads: uploads{upload: newUploadLimiter(128 << 10)}}
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

// slowLink is a link that all writes share.
type slowLink struct {
	turn chan struct{} // has room for one element
	rate int           // bytes/s
	sent int
}

func (l *slowLink) Write(p []byte) (int, error) {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(l.rate))
	l.sent += len(p)
	return len(p), nil
}

// TestResponsesYieldToBlobs checks that a response gets a part of the link while a blob is sent,
// and at most a quarter of it.
func TestResponsesYieldToBlobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{}, 1)
		n, blob, response := &Node{}, &slowLink{turn: turn, rate: 64 << 10}, &slowLink{turn: turn, rate: 64 << 10}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var tasks sync.WaitGroup
		tasks.Go(func() {
			for w := n.Throttle(ctx, blob); ctx.Err() == nil; {
				_, _ = w.Write(make([]byte, 8<<10))
			}
		})
		tasks.Go(func() {
			for w := n.throttleLast(ctx, response); ctx.Err() == nil; {
				_, _ = w.Write(make([]byte, 32<<10))
			}
		})
		tasks.Wait()
		share := float64(response.sent) / float64(blob.sent+response.sent)
		if share < 0.1 || share > 0.4 {
			t.Errorf("the response got %.2f of the link", share)
		}
	})
}
