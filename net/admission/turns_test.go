package admission

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func tcpAddr(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip)} }

// TestTurnsGoFromSiteToSite checks turns while an attacker waits with 1,000 connections from as
// many /64 networks of one /48 network.
func TestTurnsGoFromSiteToSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1)
		if err := turns.Wait(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		var waiting sync.WaitGroup
		queue := func(who, ip string) {
			waiting.Go(func() {
				if err := turns.Wait(t.Context(), tcpAddr(ip)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, who)
				mu.Unlock()
				turns.Done()
			})
			synctest.Wait()
		}
		for i := range 1000 {
			queue("attacker", fmt.Sprintf("2001:db8:1:%x::1", i))
		}
		queue("neighbor", "2001:db8:1:ffff::1")
		queue("IPv6", "2001:db8:2::1")
		queue("IPv4", "203.0.113.1")
		turns.Done()
		waiting.Wait()
		if at := slices.Index(order, "IPv4"); at != 2 || order[1] != "IPv6" || len(order) != 1003 {
			t.Errorf("the first of %d turns were %v", len(order), order[:4])
		}
		if turns.free != 1 || turns.Crowded() {
			t.Errorf("%d turns are free", turns.free)
		}
	})
}

// TestTurnsForgetConnections ends some waiting connections and checks that the turn reaches the
// others.
func TestTurnsForgetConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, errLeft := NewTurns(2), errors.New("left")
		ctx, leave := context.WithCancelCause(t.Context())
		var waiting sync.WaitGroup
		for i := range 20 {
			with := ctx
			if i%4 == 0 {
				with = t.Context()
			}
			waiting.Go(func() {
				err := turns.Wait(with, tcpAddr(fmt.Sprintf("2001:db8:%d:%d::1", i%3, i%5)))
				if err != nil && !errors.Is(err, errLeft) {
					t.Error(err)
				}
				if err == nil {
					time.Sleep(time.Second)
					turns.Done()
				}
			})
		}
		synctest.Wait()
		leave(errLeft)
		waiting.Wait()
		if turns.free != 2 || turns.Crowded() || len(turns.waiting.inner) > 0 {
			t.Errorf("%d turns are free, want 2; connections wait: %v", turns.free, turns.Crowded())
		}
	})
}

// TestSitesShareTheLimiter fills a limiter from one /48 network of IPv6. It checks that other
// networks get in, also a network of the same site that has few slots.
func TestSitesShareTheLimiter(t *testing.T) {
	l := NewLastingLimiter(64)
	evicted := 0
	for i := range 63 {
		if l.Enter(tcpAddr(fmt.Sprintf("2001:db8:1:%x::1", i)), func() { evicted++ }) == nil {
			t.Fatal("no slot")
		}
	}
	l.Enter(tcpAddr("2001:db8:1::2"), func() { evicted++ })
	for i := range 20 {
		if l.Enter(tcpAddr(fmt.Sprintf("203.0.113.%d", i)), func() { t.Error("a smaller site was evicted") }) == nil {
			t.Fatalf("address %d has no slot", i)
		}
	}
	if l.Enter(tcpAddr("2001:db8:1:ffff::1"), func() {}) != nil {
		t.Error("a further network of the largest site has a slot")
	}
	if evicted != 20 || l.total != 64 {
		t.Errorf("%d evicted, %d slots are taken", evicted, l.total)
	}
}

// TestMembersTakeFirst lets 1,000 addresses take from a budget of 10 per second without pause while
// a member takes 80.
func TestMembersTakeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewReservedBudget(10, 10, 8)
		ctx, stop := context.WithCancel(t.Context())
		var taking sync.WaitGroup
		var others atomic.Int64
		for i := range 1000 {
			taking.Go(func() {
				for b.Take(ctx, &net.TCPAddr{IP: net.IPv4(10, 1, byte(i>>8), byte(i))}, 5) == nil {
					others.Add(1)
				}
			})
		}
		time.Sleep(time.Minute)
		before, began := others.Load(), time.Now()
		for range 80 {
			if err := b.TakeFirst(t.Context(), tcpAddr("203.0.113.1"), 1); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("a member waited %v, but 8 s suffice without other clients", took)
		}
		if others.Load() == before {
			t.Error("a member keeps all other clients from the budget")
		}
		stop()
		taking.Wait()
	})
}
