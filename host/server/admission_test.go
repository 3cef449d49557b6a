package server

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/admission"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// TestUnknownClientsLeaveSlotsForMembers fills the slots for unknown clients. It checks that a
// participant can still connect.
func TestUnknownClientsLeaveSlotsForMembers(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxUnknown = 2 }, func(t *testing.T, connect func() *peer) {
		first := connect().enter(1)
		first.submit(coordinator.Join{}) // from now on a participant, not an unknown client
		go first.alive()
		time.Sleep(time.Second)
		for n := range byte(2) {
			go connect().enter(2 + n).alive()
		}
		p := connect()
		p.hello(4, hostileRun)
		p.refused(frame.RefusedBusy)
		_ = first.socket.Close()
		time.Sleep(time.Second)
		connect().enter(1) // the participant comes back
	})
}

// TestUnknownClientsShareSlots lets one address take all slots for unknown clients with idle keys.
// Other addresses can evict its connections, but it cannot evict theirs.
func TestUnknownClientsShareSlots(t *testing.T) {
	for _, role := range []frame.Role{frame.RoleParticipant, frame.RoleObserver} {
		t.Run(fmt.Sprint(role), func(t *testing.T) { testSharedSlots(t, role) })
	}
}

func testSharedSlots(t *testing.T, role frame.Role) {
	bubbleOfAddresses(t, func(o *Options) { o.MaxUnknown = 4 }, func(t *testing.T, connectFrom func(net.Addr) *peer) {
		address := func(n byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, n)} }
		ended := make([]bool, 10) // by key
		enter := func(from, key byte) {
			t.Helper()
			p := connectFrom(address(from))
			p.greet(key, role)
			p.welcome()
			go func() {
				p.alive()
				ended[key] = true
			}()
			time.Sleep(time.Second)
		}
		check := func(want ...byte) {
			t.Helper()
			synctest.Wait()
			for key, gone := range ended {
				if gone != slices.Contains(want, byte(key)) {
					t.Fatalf("closed connections by key: %v, want %v", ended, want)
				}
			}
		}
		for key := range byte(4) {
			enter(1, key)
		}
		p := connectFrom(address(1))
		p.greet(9, role)
		p.refused(frame.RefusedBusy)
		check()
		enter(2, 4)
		check(0)
		enter(3, 5)
		check(0, 1)
		enter(4, 6)
		check(0, 1, 2)
		p = connectFrom(address(5)) // no address has more slots than this address would get
		p.greet(9, role)
		p.refused(frame.RefusedBusy)
		time.Sleep(time.Minute)
		check(0, 1, 2)
	})
}

// TestObserversDoNotLockOutParticipants fills all slots of observers. It checks that participants
// and the keys of authorities can still connect.
func TestObserversDoNotLockOutParticipants(t *testing.T) {
	authority := backendtest.Key(50)
	bubble(t, func(o *Options) { o.Key, o.MaxUnknown = authority, 2 }, func(t *testing.T, connect func() *peer) {
		for n := range byte(2) {
			p := connect()
			p.greet(n, frame.RoleObserver)
			p.welcome()
			go p.alive()
		}
		p := connect()
		p.greet(3, frame.RoleObserver)
		p.refused(frame.RefusedBusy)
		go connect().enter(4).alive()
		p = connect()
		p.greet(50, frame.RoleObserver)
		p.welcome()
		p.submit(coordinator.SetPaused{Paused: true})
	})
}

// TestClientThatLeavesTheRunIsUnknown lets a participant leave the run while all slots are taken.
// The participant keeps its connection, which then counts as a connection of an unknown client.
func TestClientThatLeavesTheRunIsUnknown(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxUnknown = 1 }, func(t *testing.T, connect func() *peer) {
		leaving := connect().enter(1)
		leaving.submit(coordinator.Join{})
		time.Sleep(time.Millisecond) // so that the next nonce is higher
		unknown := connect().enter(2)
		leaving.submit(coordinator.Withdraw{Client: coordinator.ClientID(leaving.key.ID())})
		go leaving.alive()
		time.Sleep(time.Second)
		_ = unknown.socket.Close()
		time.Sleep(time.Second)
		p := connect()
		p.hello(3, hostileRun)
		p.refused(frame.RefusedBusy)
		_ = leaving.socket.Close()
		time.Sleep(time.Second)
		connect().enter(3)
	})
}

func TestObserversOfAKeyAreBounded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		for range observersPerKey {
			p := connect()
			p.greet(1, frame.RoleObserver)
			p.welcome()
			p.expect(frame.TypeState)
			go p.alive()
		}
		p := connect()
		p.greet(1, frame.RoleObserver)
		p.refused(frame.RefusedBusy)
		connect().enter(1) // the limit does not apply to participants
	})
}

// TestHandshakesAreBounded fills the slots of connections that do not identify themselves. It
// checks that newer connections evict the oldest, and that members are not affected.
func TestHandshakesAreBounded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		var silent []*peer
		for range admission.MaxWaiting {
			silent = append(silent, connect())
			silent[len(silent)-1].challenge()
		}
		p := connect()
		if _, _, err := p.reader.Next(frame.MaxHello); err == nil {
			t.Fatal("one more client was admitted at once")
		}
		time.Sleep(admission.Grace)
		works(t, connect)
		if _, _, err := silent[0].reader.Next(frame.MaxHello); err == nil {
			t.Fatal("the oldest connection is still there")
		}
	})
}

// TestActionsOfAKeyAreSlowedDown sends actions over two connections, one after the other.
func TestActionsOfAKeyAreSlowedDown(t *testing.T) {
	bubble(t, func(o *Options) { o.ActionsPerSecond, o.JoinsPerSecond = 2, 1000 }, func(t *testing.T, connect func() *peer) {
		began := time.Now()
		for range 2 {
			p := connect().enter(1)
			for range 15 {
				p.submit(coordinator.Ready{}) // the action is refused, but counts
			}
			_ = p.socket.Close()
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took < 4*time.Second || took > 6*time.Second {
			t.Fatalf("30 actions took %v, want about 5 s: 20 at once, then 2 a second", took)
		}
	})
}

// TestTLSHandshakesThatStall checks connections that send nothing, or something other than TLS.
func TestTLSHandshakesThatStall(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		began := time.Now()
		silent := connect().raw()
		if n, err := io.Copy(io.Discard, silent); n > 0 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if took := time.Since(began); took != frame.HandshakeTimeout {
			t.Fatalf("cut off after %v", took)
		}
		browser := connect().raw()
		go func() { _, _ = browser.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")) }()
		if _, err := io.Copy(io.Discard, browser); err != nil {
			t.Fatal(err)
		}
		works(t, connect)
	})
}
