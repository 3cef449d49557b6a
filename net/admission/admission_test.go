package admission

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

// TestLimiterIsFair lets one address take all slots. It checks that other addresses get in and
// evict connections of that address only.
func TestLimiterIsFair(t *testing.T) {
	l := NewLimiter()
	evicted := 0
	from := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip)} }
	for range MaxWaiting {
		if l.Enter(from("10.0.0.1"), func() { evicted++ }) == nil {
			t.Fatal("no slot")
		}
	}
	if l.Enter(from("10.0.0.1"), func() {}) != nil {
		t.Fatal("one address has more than all slots")
	}
	var taken []*Slot
	for _, ip := range []string{"10.0.0.2", "2001:db8::1", "2001:db8::2"} {
		p := l.Enter(from(ip), func() { t.Errorf("%s was evicted", ip) })
		if p == nil {
			t.Fatalf("%s has no slot", ip)
		}
		taken = append(taken, p)
	}
	if evicted != 3 || l.total != MaxWaiting || len(l.waiting) != 3 {
		t.Fatalf("%d evicted, %d have slots from %d addresses", evicted, l.total, len(l.waiting))
	}
	for range 2 { // releasing twice has the same effect as releasing once
		for _, p := range taken {
			l.Leave(p)
		}
	}
	if l.total != MaxWaiting-3 || len(l.waiting) != 1 {
		t.Fatalf("%d left", l.total)
	}
}

// TestEvictionTakesSilentConnectionsFirst fills each slot from a different address. It checks after
// which time a connection can be evicted, if it was silent and if it was not.
func TestEvictionTakesSilentConnectionsFirst(t *testing.T) {
	for _, test := range []struct {
		spoke bool
		grace time.Duration
	}{{false, Silence}, {true, Grace}} {
		synctest.Test(t, func(t *testing.T) {
			l := NewLimiter()
			from := func(n int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, byte(n>>8), byte(n))} }
			for n := range MaxWaiting {
				if p := l.Enter(from(n), func() {}); test.spoke {
					p.Spoke()
				}
			}
			time.Sleep(test.grace - time.Nanosecond)
			if l.Enter(from(MaxWaiting), func() {}) != nil {
				t.Errorf("a connection was evicted before %v", test.grace)
			}
			time.Sleep(time.Nanosecond)
			if l.Enter(from(MaxWaiting), func() {}) == nil {
				t.Errorf("no connection was evicted after %v", test.grace)
			}
		})
	}
}

// TestLastingLimiterIsFair lets connections grow old. It checks that only the number of connections
// of an address decides which connection is evicted.
func TestLastingLimiterIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 8
		l := NewLastingLimiter(slots)
		evicted := make(map[byte]int) // evicted connections by address
		enter := func(n byte) *Slot {
			time.Sleep(time.Hour)
			return l.Enter(&net.TCPAddr{IP: net.IPv4(10, 0, 0, n)}, func() { evicted[n]++ })
		}
		for range slots {
			enter(1)
		}
		for range slots {
			enter(2)
		}
		if evicted[1] != slots/2 || evicted[2] != 0 || l.total != slots {
			t.Fatalf("evicted by address: %v, %d are left", evicted, l.total)
		}
		for range slots {
			enter(1)
			enter(3)
		}
		if evicted[1]+evicted[2] != slots/2+2 || evicted[3] != 0 || l.total != slots {
			t.Fatalf("evicted by address: %v, %d are left", evicted, l.total)
		}
		if l.Admit(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, func() {}) == nil || l.total != slots+1 {
			t.Fatalf("%d connections are left", l.total)
		}
		if enter(4) == nil || l.total != slots+1 {
			t.Fatalf("%d connections, want one more than the slots: each new one evicts one", l.total)
		}
	})
}

// TestKeyBucketsAreBounded checks that the buckets of keys that no longer act are removed.
func TestKeyBucketsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKeyLimits[identity.ID](1, 2)
		id := func(n int) identity.ID { return identity.ID{byte(n), byte(n >> 8), byte(n >> 16)} }
		for n := range maxKeys {
			k.Of(id(n)).Allow()
		}
		busy := id(1)
		time.Sleep(time.Hour)
		k.Of(busy).AllowN(time.Now(), 2)
		k.Of(id(maxKeys))
		if len(k.buckets) != 2 || k.Of(busy).Allow() {
			t.Fatalf("%d buckets are kept, want only two: of the busy key and of the new key", len(k.buckets))
		}
	})
}
