package p2p_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

const bulkEcho = "/psyche/test/bulk/1"

// handleBulk answers each byte with 1 MiB of that byte. A 0 ends the exchange with an error.
func handleBulk(n *p2p.Node) {
	limits := p2p.StreamLimits{PerPeer: 16, Total: 16, Timeout: p2ptest.Wait}
	n.HandleBulk(bulkEcho, limits, func(_ context.Context, _ identity.ID, s p2p.Stream) error {
		var b [1]byte
		if _, err := io.ReadFull(s, b[:]); err != nil {
			return err
		}
		if b[0] == 0 {
			return errors.New("as asked")
		}
		_, err := s.Write(bytes.Repeat(b[:], 1<<20))
		return err
	})
}

// bulkExchange sends one byte and reads the answer. It leaves the connection open for the next
// exchange.
func bulkExchange(t *testing.T, from, to *p2p.Node, b byte) error {
	t.Helper()
	s, err := from.OpenBulk(testContext(t), to.ID(), bulkEcho)
	if err != nil {
		return err
	}
	if _, err := s.Write([]byte{b}); err != nil {
		return errors.Join(err, s.Reset())
	}
	_ = s.CloseWrite()
	got := make([]byte, 1<<20)
	if _, err := io.ReadFull(s, got); err != nil {
		return errors.Join(err, s.Reset())
	}
	if !bytes.Equal(got, bytes.Repeat([]byte{b}, len(got))) {
		t.Errorf("wrong answer to %d", b)
	}
	return s.Close()
}

func TestBulkExchanges(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	handleBulk(nodes[0])
	handleBulk(nodes[1])
	for i, from := range nodes { // whichever node dialled the ordinary connection
		to := nodes[1-i]
		_, begun := from.Bytes()
		for b := range byte(5) {
			if err := bulkExchange(t, from, to, b+1); err != nil {
				t.Fatal(err)
			}
		}
		if dialled, _ := p2p.BulkConns(from); dialled != 1 {
			t.Errorf("%d connections for exchanges one after the other", dialled)
		}
		if _, received := from.Bytes(); received-begun < 5<<20 {
			t.Errorf("counted %d bytes", received-begun)
		}
	}
	// A failed connection is not used again. The next exchange opens a new one.
	if err := bulkExchange(t, nodes[0], nodes[1], 0); err == nil {
		t.Error("want an error of the exchange")
	}
	if err := bulkExchange(t, nodes[0], nodes[1], 9); err != nil {
		t.Error(err)
	}
	// A protocol that is not served on bulk connections uses ordinary streams.
	handleEcho(nodes[1])
	s, err := nodes[0].OpenBulk(testContext(t), nodes[1].ID(), echo)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Reset()
	if dialled, _ := p2p.BulkConns(nodes[0]); dialled != 1 {
		t.Errorf("%d connections", dialled)
	}
}

// TestBulkEndsWithMembership checks that a client that leaves the list of members loses its
// connections, used or not, and cannot open new ones.
func TestBulkEndsWithMembership(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b", "c")
	a, b := nodes[0], nodes[1]
	handleBulk(a)
	if err := bulkExchange(t, b, a, 1); err != nil {
		t.Fatal(err)
	}
	busy, err := b.OpenBulk(testContext(t), a.ID(), bulkEcho)
	if err != nil {
		t.Fatal(err)
	}
	a.SetMembers(p2ptest.Peers(a, nodes[2]))
	if _, err := busy.Read(make([]byte, 1)); err == nil {
		t.Error("a connection of a former member is still open")
	}
	_ = busy.Reset()
	if err := bulkExchange(t, b, a, 1); err == nil {
		t.Error("a former member got an answer")
	}
	if _, served := p2p.BulkConns(a); served != 0 {
		t.Errorf("%d connections of former members", served)
	}
	if _, err := a.OpenBulk(testContext(t), b.ID(), bulkEcho); !errors.Is(err, p2p.ErrNotMember) {
		t.Errorf("to a former member: %v", err)
	}
}

// TestBulkRefusesNonMembers checks that a client without the handshake of a member cannot open a
// bulk connection and does not delay members.
func TestBulkRefusesNonMembers(t *testing.T) {
	a, b, nonMember := p2ptest.Node(t, "a"), p2ptest.Node(t, "b"), p2ptest.Node(t, "stranger")
	handleBulk(a)
	p2ptest.Connect(t, a, b)
	nonMember.SetMembers(p2ptest.Peers(a))
	if err := p2p.DialBulk(testContext(t), nonMember, a.ID(), bulkEcho, a.Addrs()); err == nil {
		t.Error("a non-member has a bulk connection")
	}
	if err := p2p.DialBulk(testContext(t), b, a.ID(), "/psyche/test/other/1", a.Addrs()); err == nil {
		t.Error("an unserved protocol has a bulk connection")
	}
	for range 3 {
		silent := p2p.DialTLSPort(t, a.Addrs())
		defer func() { _ = silent.Close() }()
		_ = silent.SetDeadline(time.Now().Add(p2ptest.Wait))
		if _, err := silent.Write([]byte("\x16\x03\x01garbage that is no handshake")); err != nil {
			t.Fatal(err)
		}
	}
	for b2 := range byte(3) {
		if err := bulkExchange(t, b, a, b2+1); err != nil {
			t.Fatal(err)
		}
	}
	if _, served := p2p.BulkConns(a); served != 1 {
		t.Errorf("%d connections", served)
	}
}

// TestBulkConnectionsAreBounded checks that one member cannot take all bulk connections. Further
// exchanges use ordinary streams.
func TestBulkConnectionsAreBounded(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	handleBulk(nodes[1])
	var open []p2p.Stream
	for range 12 {
		s, err := nodes[0].OpenBulk(testContext(t), nodes[1].ID(), bulkEcho)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	dialled, _ := p2p.BulkConns(nodes[0])
	if _, served := p2p.BulkConns(nodes[1]); dialled != 4 || served != 4 {
		t.Errorf("%d connections dialled, %d served", dialled, served)
	}
	for _, s := range open {
		_ = s.Reset()
	}
}

// TestNoBulkThroughARelay checks that relayed members do not use bulk connections.
func TestNoBulkThroughARelay(t *testing.T) {
	t.Parallel()
	a, b, relay := hidden(t, "a", nil), hidden(t, "b", nil), p2ptest.Node(t, "relay")
	handleBulk(b)
	p2ptest.Connect(t, a, relay, b)
	if err := bulkExchange(t, a, b, 3); err != nil {
		t.Fatal(err)
	}
	if dialled, _ := p2p.BulkConns(a); dialled != 0 {
		t.Errorf("%d connections", dialled)
	}
}
