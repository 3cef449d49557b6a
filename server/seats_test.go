package server

import (
	"net"
	"testing"
	"time"

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

// TestSeatsGivenUpCount lets all clients of one network leave an epoch, into which they may return: no
// others of that network get in meanwhile.
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
			t.Errorf("another one of the network: %v, want ErrFull", code)
		}
	})
}
