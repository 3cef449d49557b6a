package server

import (
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// TestOneNetworkTakesNotAllSeats lets clients of several addresses of one network join until the
// limit. It checks that clients of other networks can join, and that participants are not refused.
func TestOneNetworkTakesNotAllSeats(t *testing.T) {
	const most = 5
	seats := func(o *Options) { o.MaxSeatsPerNetwork = most }
	bubbleOfAddresses(t, seats, func(t *testing.T, connectFrom func(net.Addr) *peer) {
		join := func(ip string, key byte, holds [32]byte) coordinator.Code {
			t.Helper()
			p := connectFrom(&net.TCPAddr{IP: net.ParseIP(ip)}).enter(key)
			code := p.submitted(coordinator.Join{Holds: holds})
			go p.alive()
			return code
		}
		for key := range byte(most) {
			if code := join("203.0.113."+string('1'+rune(key)), 1+key, [32]byte{}); code != 0 {
				t.Fatalf("client %d of the network: %v", key+1, code)
			}
		}
		if code := join("203.0.113.99", 100, [32]byte{}); code != coordinator.ErrFull {
			t.Errorf("one client more of the network: %v, want ErrFull", code)
		}
		if code := join("203.0.114.1", 101, [32]byte{}); code != 0 {
			t.Errorf("a client of a different network: %v", code)
		}
		for key := range byte(most + 1) {
			if code := join("192.168.1.1", 102+key, [32]byte{}); code != 0 {
				t.Errorf("client %d of a private network: %v", key+1, code)
			}
		}
	})
}

// TestPrivateNetworks lets clients join through a proxy, from one loopback address. They may take
// all seats unless a limit is set. One warning reports the common address.
func TestPrivateNetworks(t *testing.T) {
	for _, most := range []int{0, 5} {
		var log lockedText
		bubbleOfAddresses(t, func(o *Options) {
			o.MaxSeatsPerPrivateNetwork, o.Logger = most, slog.New(slog.NewTextHandler(&log, nil))
		}, func(t *testing.T, connectFrom func(net.Addr) *peer) {
			proxy := &net.TCPAddr{IP: net.ParseIP("127.0.0.1")}
			for key := range byte(7) {
				p := connectFrom(proxy).enter(1 + key)
				want := coordinator.Code(0)
				if most > 0 && int(key) >= most {
					want = coordinator.ErrFull
				}
				if code := p.submitted(coordinator.Join{}); code != want {
					t.Errorf("at most %d: client %d: %v, want %v", most, key+1, code, want)
				}
				go p.alive()
			}
			elsewhere := connectFrom(&net.TCPAddr{IP: net.ParseIP("203.0.113.1")}).enter(100)
			if code := elsewhere.submitted(coordinator.Join{}); code != 0 {
				t.Errorf("at most %d: a client of a different network: %v", most, code)
			}
		})
		if n := strings.Count(log.text(), " address=127.0.0.1 clients="); n != 1 {
			t.Errorf("at most %d: %d warnings about a common address", most, n)
		}
	}
}

// lockedText is a log that goroutines can write concurrently.
type lockedText struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(b)
}

func (l *lockedText) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// TestSeatsGivenUpCount lets all clients of one network leave an epoch. Because they may return,
// other clients of the network cannot join in the meantime.
func TestSeatsGivenUpCount(t *testing.T) {
	const most = 5
	seats := func(o *Options) { o.MaxSeatsPerNetwork = most }
	bubbleOfAddresses(t, seats, func(t *testing.T, connectFrom func(net.Addr) *peer) {
		var members []*peer
		for key := range byte(most) {
			p := connectFrom(&net.TCPAddr{IP: net.ParseIP("203.0.113." + string('1'+rune(key)))}).enter(1 + key)
			if code := p.submitted(coordinator.Join{}); code != 0 {
				t.Fatalf("client %d of the network: %v", key+1, code)
			}
			members = append(members, p)
		}
		time.Sleep(3 * time.Second) // an epoch begins
		for _, p := range members {
			if code := p.submitted(coordinator.Withdraw{Client: coordinator.ClientID(p.key.ID())}); code != 0 {
				t.Fatalf("a member could not leave: %v", code)
			}
			go p.alive()
		}
		late := connectFrom(&net.TCPAddr{IP: net.ParseIP("203.0.113.99")}).enter(100)
		if code := late.submitted(coordinator.Join{}); code != coordinator.ErrFull {
			t.Errorf("a further client of the network: %v, want ErrFull", code)
		}
	})
}
