package p2p_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

const onlyTCP = "/ip4/127.0.0.1/tcp/0"

// tcpAddr returns the TCP address on which a node listens.
func tcpAddr(t *testing.T, n *p2p.Node) string {
	t.Helper()
	for _, a := range n.Addrs() {
		if !strings.Contains(a, "/tcp/") {
			continue
		}
		m, err := ma.NewMultiaddr(a)
		if err != nil {
			t.Fatal(err)
		}
		addr, err := manet.ToNetAddr(m)
		if err != nil {
			t.Fatal(err)
		}
		return addr.String()
	}
	t.Fatal("no TCP address")
	return ""
}

// crowd keeps count connections open that send a text and then nothing. They reconnect when they
// are cut off.
func crowd(ctx context.Context, address string, count int, says string) *sync.WaitGroup {
	var wg sync.WaitGroup
	for range count {
		wg.Go(func() {
			for ctx.Err() == nil {
				c, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", address)
				if err != nil {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				_, _ = c.Write([]byte(says))
				var b [256]byte
				for {
					if _, err := c.Read(b[:]); err != nil {
						break
					}
				}
				stop()
				_ = c.Close()
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	return &wg
}

// TestSilentConnectionsDoNotLockOutAMember lets unknown clients from one address open connections
// that send nothing or begin a libp2p handshake without finishing it. It checks that a member can
// still connect over TCP.
func TestSilentConnectionsDoNotLockOutAMember(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		count int
		says  string
	}{
		"400 silent":         {400, ""},
		"200 that stop":      {200, "\x13/multistream/1.0.0\n"},
		"200 TLS":            {200, "\x16\x03\x01\x02\x00"},
		"200 with two bytes": {200, "\x13/"},
	} {
		t.Run(name, func(t *testing.T) { // one at a time: a thousand connections starve a small machine
			a, b := p2ptest.Node(t, "a", onlyTCP), p2ptest.Node(t, "b", onlyTCP)
			ctx, cancel := context.WithCancel(t.Context())
			wg := crowd(ctx, tcpAddr(t, a), test.count, test.says)
			defer wg.Wait()
			defer cancel()
			comesIn(ctx, t, a, b)
		})
	}
}

// comesIn checks that node b can connect to node a after unknown clients have occupied a for a
// while.
func comesIn(ctx context.Context, t *testing.T, a, b *p2p.Node) {
	t.Helper()
	time.Sleep(2 * time.Second)            // of the kernel's clock: in which unknown clients connect
	a.SetMembers([]p2p.Peer{{ID: b.ID()}}) // a cannot dial b
	begun := time.Now()
	b.SetMembers(p2ptest.Peers(a))
	waiting, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	if err := b.WaitConnected(waiting, a.ID()); err != nil {
		t.Fatal(err)
	}
	t.Logf("connected after %.1f s", time.Since(begun).Seconds())
}

// TestFloodOfConnectionsDoesNotLockOutAMember opens 1,500 TCP connections a second that end at
// once, which exceeds the budget for handshakes. It checks that a member can still connect.
func TestFloodOfConnectionsDoesNotLockOutAMember(t *testing.T) {
	t.Parallel()
	a, b := p2ptest.Node(t, "a", onlyTCP), p2ptest.Node(t, "b", onlyTCP)
	ctx, cancel := context.WithCancel(t.Context())
	address := tcpAddr(t, a)
	var opened atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ticks := time.NewTicker(8 * time.Second / 1500)
			defer ticks.Stop()
			for ctx.Err() == nil {
				c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
				if err == nil {
					_ = c.(*net.TCPConn).SetLinger(0)
					_ = c.Close()
					opened.Add(1)
				}
				select {
				case <-ticks.C:
				case <-ctx.Done():
				}
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	comesIn(ctx, t, a, b)
	t.Logf("%d connections opened", opened.Load())
}
