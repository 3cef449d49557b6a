package p2p_test

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// hidden starts a node that other nodes cannot dial, as behind a NAT.
func hidden(t *testing.T, name string, change func(*p2p.Options)) *p2p.Node {
	t.Helper()
	o := p2p.Options{Key: p2ptest.Key(name)}
	if change != nil {
		change(&o)
	}
	n, err := p2p.New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// TestHiddenMembersMeetThroughAThird checks that two members that cannot be dialled reach each
// other through a third.
func TestHiddenMembersMeetThroughAThird(t *testing.T) {
	t.Parallel()
	a, b := hidden(t, "a", nil), hidden(t, "b", nil)
	relay := p2ptest.Node(t, "relay")
	handleEcho(b)
	p2ptest.Connect(t, a, relay, b)
	if !a.Relayed(b.ID()) || a.Relayed(relay.ID()) {
		t.Errorf("relayed: b %v, the relay %v", a.Relayed(b.ID()), a.Relayed(relay.ID()))
	}
	large := bytes.Repeat([]byte("x"), 1<<20) // far above the limits of public relays
	got, err := a.Request(testContext(t), b.ID(), echo, large, len(large))
	if err != nil || !bytes.Equal(got, large) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	// A relay serves members only: leaving the run ends the circuit.
	a.SetMembers(p2ptest.Peers(relay))
	if _, err := b.Request(testContext(t), a.ID(), echo, nil, 1); err == nil {
		t.Error("a member that was dropped still answers through the relay")
	}
}

// TestHiddenMembersMeetThroughANamedRelay checks relaying by a named relay that is not a member.
func TestHiddenMembersMeetThroughANamedRelay(t *testing.T) {
	t.Parallel()
	relay := p2ptest.Node(t, "relay")
	p, err := p2p.PeerID(relay.ID())
	if err != nil {
		t.Fatal(err)
	}
	named := func(o *p2p.Options) { o.Relays = []string{relay.Addrs()[0] + "/p2p/" + p.String()} }
	a, b := hidden(t, "a", named), hidden(t, "b", named)
	relay.SetMembers(p2ptest.Peers(a, b)) // the relay accepts its members only
	handleEcho(b)
	p2ptest.Connect(t, a, b)
	if _, err := a.Request(testContext(t), b.ID(), echo, []byte("hi"), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Request(testContext(t), relay.ID(), echo, nil, 2); !errors.Is(err, p2p.ErrNotMember) {
		t.Errorf("request to a relay: %v", err)
	}
}

func TestRelayingCanBeRefused(t *testing.T) {
	t.Parallel()
	a, b := hidden(t, "a", nil), hidden(t, "b", nil)
	unwilling, err := p2p.New(context.Background(), p2p.Options{Key: p2ptest.Key("no"), Listen: p2ptest.Loopback, NoRelay: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unwilling.Close() })
	for _, n := range []*p2p.Node{a, b, unwilling} {
		n.SetMembers(p2ptest.Peers(a, b, unwilling))
	}
	if err := unwilling.WaitConnected(testContext(t), a.ID(), b.ID()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := a.WaitConnected(ctx, b.ID()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("reached through a member that does not relay: %v", err)
	}
}

// TestPeersTellWhereMembersAre checks that a node asks its peers for the address of a member that
// it does not know.
func TestPeersTellWhereMembersAre(t *testing.T) {
	t.Parallel()
	a, b, c := p2ptest.Node(t, "a"), p2ptest.Node(t, "b"), p2ptest.Node(t, "c")
	b.SetMembers(p2ptest.Peers(a, c))
	c.SetMembers([]p2p.Peer{{ID: a.ID()}, {ID: b.ID(), Addrs: b.Addrs()}})
	if err := b.WaitConnected(testContext(t), c.ID()); err != nil {
		t.Fatal(err)
	}
	a.SetMembers([]p2p.Peer{{ID: b.ID(), Addrs: b.Addrs()}, {ID: c.ID()}})
	if err := a.WaitConnected(testContext(t), b.ID(), c.ID()); err != nil {
		t.Fatal(err)
	}
	if a.Relayed(c.ID()) {
		// The relay may have been faster. A direct connection follows once the address is known.
		t.Log("reached through a relay first")
	}
}

// TestFalsePeerRecords checks that a peer's answer about the address of a member counts only with
// the signature of that member.
func TestFalsePeerRecords(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"", "\x00", "\x00\x05abc", "\x00\x03abc", "\xff\xff", strings.Repeat("x", 4000)} {
		nodes := p2ptest.New(t, "a", "b")
		nodes[1].Handle("/psyche/peers/1", 1<<10, func(context.Context, identity.ID, []byte) ([]byte, error) {
			return []byte(answer), nil
		})
		asked := make(chan struct{})
		lost := p2ptest.Key("lost").ID()
		nodes[0].SetMembers(append(p2ptest.Peers(nodes[1]), p2p.Peer{ID: lost}))
		go func() {
			defer close(asked)
			p2p.AskAbout(nodes[0], nodes[1].ID(), lost)
		}()
		<-asked
		if bad := nodes[0].Score(nodes[1].ID()) < 0; bad != (answer != "") {
			t.Errorf("answer %q: score %v", answer, nodes[0].Score(nodes[1].ID()))
		}
	}
}

// TestRelayKeepsItsUploadRate checks that relayed bytes count toward the upload rate of the relay.
func TestRelayKeepsItsUploadRate(t *testing.T) {
	t.Parallel()
	const rate = 1 << 20 // bytes per second
	a, b := hidden(t, "a", nil), hidden(t, "b", nil)
	relay := hidden(t, "relay", func(o *p2p.Options) { o.Listen, o.MaxUploadRate = p2ptest.Loopback, rate })
	handleEcho(b)
	p2ptest.Connect(t, a, relay, b)
	begun := time.Now()
	sent := bytes.Repeat([]byte("x"), 1<<20) // sent there and back
	if got, err := a.Request(testContext(t), b.ID(), echo, sent, len(sent)); err != nil || len(got) != len(sent) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if took := time.Since(begun); took < time.Second {
		t.Errorf("2 MiB at %d bytes per second took %v", rate, took)
	}
}

// TestFoundInTheLocalNetwork checks that addresses found in the local network lead to members, but
// do not make a node a member.
func TestFoundInTheLocalNetwork(t *testing.T) {
	t.Parallel()
	a, b, nonMember := p2ptest.Node(t, "a"), p2ptest.Node(t, "b"), p2ptest.Node(t, "stranger")
	a.SetMembers([]p2p.Peer{{ID: b.ID()}})
	b.SetMembers([]p2p.Peer{{ID: a.ID()}})
	p2p.FoundLocally(a, nonMember.ID(), nonMember.Addrs())
	many := []string{"/ip4/127.0.0.1/tcp/1/ws", "/p2p-circuit"}
	for i := range 100 {
		many = append(many, "/ip4/127.0.0.1/tcp/"+strconv.Itoa(1+i))
	}
	p2p.FoundLocally(a, b.ID(), many)
	if got := p2p.Learned(a, b.ID()); got == 0 || got > 16 {
		t.Errorf("%d addresses learned", got)
	}
	p2p.FoundLocally(a, b.ID(), b.Addrs())
	if err := a.WaitConnected(testContext(t), b.ID()); err != nil {
		t.Fatal(err)
	}
	if a.IsMember(nonMember.ID()) || len(a.Connected()) != 1 {
		t.Errorf("connected to %v", a.Connected())
	}
}
