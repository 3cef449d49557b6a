package p2p

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

// crowd are exchanges in a queue that last until they are ended.
type crowd struct {
	t    *testing.T
	q    *queue
	slow map[byte]bool // members that take too little
}

// come enters with n exchanges of a member; they end when evicted or when stop is called,
// and leave as long as they need to notice.
func (c crowd) come(member byte, n int, notice time.Duration) (served *atomic.Int64, stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	from, served := identity.ID{member}, new(atomic.Int64)
	for range n {
		go func() {
			if !c.q.enter(from) {
				return
			}
			defer c.q.leave(from)
			ended := make(chan struct{})
			p := &place{from: from, end: func() { close(ended) }, slow: func() bool { return c.slow[member] }}
			if !c.q.take(ctx, p) {
				return
			}
			served.Add(1)
			select {
			case <-ended:
				time.Sleep(notice)
			case <-ctx.Done():
			}
			served.Add(-1)
			if evicted := c.q.release(p); evicted != (ctx.Err() == nil) {
				c.t.Errorf("evicted %v", evicted)
			}
		}()
		synctest.Wait() // one after the other
	}
	return served, func() {
		cancel()
		synctest.Wait()
	}
}

// counts returns how many wait, of how many members that have streams, and how many of
// those that are served were evicted.
func (c crowd) counts() (waiting, members, leaving int) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	return len(c.q.waiting), len(c.q.shares), c.q.leaving
}

// However many places a few members hold, one with few gets one, and at most as many are
// served as may be.
func TestPlacesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowd{t: t, q: newQueue(16, 64)}
		var greedy [4]*atomic.Int64
		var stops [4]func()
		for i := range greedy {
			greedy[i], stops[i] = c.come(byte(i), 20, time.Millisecond)
			if greedy[i].Load() != 16 {
				t.Fatalf("%d places of a member alone", greedy[i].Load())
			}
		}
		honest, stop := c.come(9, 4, 0)
		all := honest.Load()
		for _, n := range greedy {
			all += n.Load()
		}
		if all != 64 {
			t.Errorf("%d are served before the evicted streams end", all)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if honest.Load() != 4 {
			t.Errorf("%d of 4 are served", honest.Load())
		}
		// The greedy ones come again: they take from each other.
		for i := range greedy {
			_, again := c.come(byte(i), 16, 0)
			defer again()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if honest.Load() != 4 {
			t.Errorf("%d of 4 are left", honest.Load())
		}
		stop()
		for _, stop := range stops {
			stop()
		}
	})
}

// Members that have the same go on; who does not get a place in time is told so.
func TestBusyQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowd{t: t, q: newQueue(2, 2)}
		a, stopA := c.come(1, 1, 0)
		b, stopB := c.come(2, 1, 0)
		late, stop := c.come(3, 1, 0)
		time.Sleep(turnTime - 1)
		synctest.Wait()
		if waiting, _, _ := c.counts(); waiting != 1 {
			t.Errorf("%d wait", waiting)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		waiting, members, _ := c.counts()
		if a.Load() != 1 || b.Load() != 1 || late.Load() != 0 || waiting != 0 || members != 2 {
			t.Errorf("%d, %d and %d are served, %d wait, of %d members", a.Load(), b.Load(), late.Load(), waiting, members)
		}
		stop()
		// A place that becomes free goes to who has the fewest.
		more, stopMore := c.come(1, 1, 0)
		late, stop = c.come(3, 1, 0)
		stopB()
		if late.Load() != 1 || more.Load()+a.Load() != 1 {
			t.Errorf("%d is served, the other has %d", late.Load(), more.Load()+a.Load())
		}
		stopMore()
		stop()
		stopA()
		if waiting, members, leaving := c.counts(); waiting+members+leaving != 0 {
			t.Errorf("left behind: %d that wait, %d members, %d evicted", waiting, members, leaving)
		}
	})
}

// A third of the members of the largest run cannot keep out another one, whatever they hold.
func TestAThirdKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const third = 256 / 3
		c := crowd{t: t, q: newQueue(requestsPerPeer, requestsTotal)}
		for range 2 { // first one place each, then as many as there are
			for m := range third {
				_, stop := c.come(byte(m), 1, 0)
				defer stop()
			}
		}
		honest, stop := c.come(200, 1, 0)
		defer stop()
		if honest.Load() != 1 {
			t.Error("a member has no place")
		}
	})
}

// A slow exchange ends for a member that has nothing, the oldest first, and for nobody else.
func TestSlowGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowd{t: t, q: newQueue(4, 3), slow: map[byte]bool{2: true, 3: true}}
		var served [6]*atomic.Int64
		for _, m := range []byte{1, 2, 3} {
			var stop func()
			served[m], stop = c.come(m, 1, time.Millisecond)
			defer stop()
		}
		count := func(want ...int64) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			for i, n := range want {
				if got := served[i+1].Load(); got != n {
					t.Errorf("member %d has %d places, want %d", i+1, got, n)
				}
			}
		}
		_, stop := c.come(1, 3, 0) // who has one gets none of them
		count(1, 1, 1)
		stop()
		served[4], stop = c.come(4, 2, 0) // one is enough
		defer stop()
		count(1, 0, 1, 1)
		served[5], stop = c.come(5, 1, 0)
		defer stop()
		count(1, 0, 0, 1, 1)
		late, stop := c.come(6, 1, 0)
		defer stop()
		count(1, 0, 0, 1, 1)
		if late.Load() != 0 {
			t.Error("a member that is not slow lost its place")
		}
	})
}
