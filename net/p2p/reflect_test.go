package p2p_test

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// TestMembersAreNoWeapon lets a member repeatedly announce 16 ports of a victim and change its
// announcement. An honest member sends the victim only a few packets.
func TestMembersAreNoWeapon(t *testing.T) {
	t.Parallel()
	const most = 12 * 10 << 10 // each dial sends some packets of 1280 bytes
	var bytes atomic.Int64
	listen := func() int {
		c, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp4", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			buf := make([]byte, 2048)
			for {
				n, _, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				bytes.Add(int64(n) + 28)
			}
		}()
		return c.LocalAddr().(*net.UDPAddr).Port
	}
	victims := func(host string) (addrs []string) {
		for range 16 {
			addrs = append(addrs, fmt.Sprintf("/ip4/%s/udp/%d/quic-v1", host, listen()))
		}
		return addrs
	}
	first, second := victims("127.0.0.1"), victims("127.0.0.1")
	evil := p2ptest.Key("evil").ID()
	a := p2ptest.Node(t, "a")
	for i := range 24 {
		a.SetMembers([]p2p.Peer{{ID: evil, Addrs: [][]string{first, second}[i%2]}})
		time.Sleep(250 * time.Millisecond) // libp2p dials by the wall clock, a member's addresses one after the other
		if i%5 == 4 {
			a.SetMembers(nil) // the member leaves and comes back
		}
	}
	time.Sleep(5 * time.Second) // until the last dials have ended
	t.Logf("%d bytes", bytes.Load())
	if sent := bytes.Load(); sent == 0 || sent > most {
		t.Errorf("a non-member received %d bytes, want some and at most %d", sent, most)
	}
}

// TestInnerAddressesAreNotDialled checks that a node that listens beyond loopback does not dial a
// loopback address.
func TestInnerAddressesAreNotDialled(t *testing.T) {
	t.Parallel()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inner.Close() }()
	var came atomic.Bool
	go func() {
		if c, err := inner.Accept(); err == nil {
			came.Store(true)
			_ = c.Close()
		}
	}()
	a := p2ptest.Node(t, "a", "/ip4/0.0.0.0/tcp/0")
	if !beyondLoopback(a.Addrs()) {
		t.Skip("this machine has only loopback addresses")
	}
	port := inner.Addr().(*net.TCPAddr).Port
	evil := p2ptest.Key("evil").ID()
	a.SetMembers([]p2p.Peer{{ID: evil, Addrs: []string{
		fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", port), fmt.Sprintf("/dns4/localhost/tcp/%d", port),
	}}})
	time.Sleep(3 * time.Second) // in which a node that may dial these addresses does so
	if came.Load() {
		t.Error("a port that only the machine itself reaches was dialled")
	}
}

func beyondLoopback(addrs []string) bool {
	for _, addr := range addrs {
		if len(addr) < 9 || addr[:9] != "/ip4/127." {
			return true
		}
	}
	return false
}
