package server

import (
	"net"
	"testing"

	"github.com/psyche-go/psyche/coordinator"
)

// TestOneNetworkTakesNotAllSeats lets clients of one network join until no more may, from
// several of its addresses; others get in, and who takes part already is not refused.
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
			t.Errorf("one more of the network: %v, want ErrFull", code)
		}
		if code := join("203.0.114.1", 101, [32]byte{}); code != 0 {
			t.Errorf("one of another network: %v", code)
		}
		for key := range byte(most + 1) {
			if code := join("192.168.1.1", 102+key, [32]byte{}); code != 0 {
				t.Errorf("client %d of a private network: %v", key+1, code)
			}
		}
	})
}
