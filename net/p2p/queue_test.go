package p2p

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

// crowd controls exchanges in a queue that last until they are ended.
type crowd struct {
	t    *testing.T
	q    *queue
	slow map[byte]bool // members whose readers are too slow
}

// come starts n exchanges of a member. They end when they are evicted or when stop is called. An
// evicted exchange leaves after the time notice.
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
			p := &queuedExchange{from: from, end: func() { close(ended) }, slow: func() bool { return c.slow[member] }}
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

// counts returns the number of waiting exchanges, of members with streams, and of served exchanges
// that were evicted.
func (c crowd) counts() (waiting, members, leaving int) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	return len(c.q.waiting), len(c.q.shares), c.q.leaving
}

// TestSlotsAreShared checks that a member with few exchanges gets slots, however many slots a few
// other members hold. The number of served exchanges never exceeds the maximum.
func TestSlotsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowd{t: t, q: newQueue(16, 64)}
		var greedy [4]*atomic.Int64
		var stops [4]func()
		for i := range greedy {
			greedy[i], stops[i] = c.come(byte(i), 20, time.Millisecond)
			if greedy[i].Load() != 16 {
				t.Fatalf("%d slots of a single member", greedy[i].Load())
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
		// The greedy members come again. They take slots from each other.
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

// TestBusyQueueRefuses checks that members with equal numbers of slots keep them, and that an
// exchange that does not get a slot in time is refused.
func TestBusyQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowd{t: t, q: newQueue(2, 2)}
		a, stopA := c.come(1, 1, 0)
		b, stopB := c.come(2, 1, 0)
		late, stop := c.come(3, 1, 0)
		time.Sleep(turnTime - 1)
		synctest.Wait()
		if waiting, _, _ := c.counts(); waiting != 1 {
			t.Errorf("%d exchanges wait", waiting)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		waiting, members, _ := c.counts()
		if a.Load() != 1 || b.Load() != 1 || late.Load() != 0 || waiting != 0 || members != 2 {
			t.Errorf("%d, %d and %d are served, %d wait, of %d members", a.Load(), b.Load(), late.Load(), waiting, members)
		}
		stop()
		// A free slot goes to the member with the fewest slots.
		more, stopMore := c.come(1, 1, 0)
		late, stop = c.come(3, 1, 0)
		stopB()
		if late.Load() != 1 || more.Load()+a.Load() != 1 {
			t.Errorf("%d is served, the other member has %d", late.Load(), more.Load()+a.Load())
		}
		stopMore()
		stop()
		stopA()
		if waiting, members, leaving := c.counts(); waiting+members+leaving != 0 {
			t.Errorf("left behind: %d waiting exchanges, %d members, %d evicted", waiting, members, leaving)
		}
	})
}

// TestAThirdOfTheMembersLocksNoMemberOut checks that a third of the members of the largest run
// cannot lock out another member, however many slots they hold.
func TestAThirdOfTheMembersLocksNoMemberOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const third = 256 / 3
		c := crowd{t: t, q: newQueue(requestsPerPeer, requestsTotal)}
		for range 2 { // first one slot each, then all slots
			for m := range third {
				_, stop := c.come(byte(m), 1, 0)
				defer stop()
			}
		}
		honest, stop := c.come(200, 1, 0)
		defer stop()
		if honest.Load() != 1 {
			t.Error("a member has no slot")
		}
	})
}

// TestSlowExchangesAreEvicted checks that a slow exchange ends only for a member without a slot,
// the oldest slow exchange first.
func TestSlowExchangesAreEvicted(t *testing.T) {
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
					t.Errorf("member %d has %d slots, want %d", i+1, got, n)
				}
			}
		}
		_, stop := c.come(1, 3, 0) // a member with a slot does not get another
		count(1, 1, 1)
		stop()
		served[4], stop = c.come(4, 2, 0) // one slot is enough
		defer stop()
		count(1, 0, 1, 1)
		served[5], stop = c.come(5, 1, 0)
		defer stop()
		count(1, 0, 0, 1, 1)
		late, stop := c.come(6, 1, 0)
		defer stop()
		count(1, 0, 0, 1, 1)
		if late.Load() != 0 {
			t.Error("a member that is not slow lost its slot")
		}
	})
}
