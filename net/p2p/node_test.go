package p2p_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const echo = "/psyche/test/echo/1"

func handleEcho(n *p2p.Node) {
	n.Handle(echo, 1<<20, func(_ context.Context, _ identity.ID, request []byte) ([]byte, error) {
		return request, nil
	})
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), p2ptest.Wait)
	t.Cleanup(cancel)
	return ctx
}

func TestRequest(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b", "c")
	a, b := nodes[0], nodes[1]
	var caller atomic.Value
	b.Handle(echo, 1<<20, func(_ context.Context, from identity.ID, request []byte) ([]byte, error) {
		caller.Store(from)
		switch {
		case string(request) == "panic":
			panic("as asked")
		case string(request) == "refuse":
			return nil, errors.New("will not do\xff" + strings.Repeat("!", 2000))
		case string(request) == "huge":
			return make([]byte, p2p.MaxResponse+1), nil
		}
		return append([]byte("re: "), request...), nil
	})
	tests := []struct {
		name        string
		request     []byte
		maxResponse int
		want        string
		err         error
		anyErr      bool
	}{
		{name: "answer", request: []byte("hello"), maxResponse: 9, want: "re: hello"},
		{name: "empty", maxResponse: 4, want: "re: "},
		{name: "response too large", request: []byte("hello"), maxResponse: 8, err: p2p.ErrTooLarge},
		{name: "request at the limit", request: make([]byte, 1<<20), maxResponse: 2 << 20, want: "re: " + string(make([]byte, 1<<20))},
		{name: "request too large", request: make([]byte, 1<<20+1), maxResponse: 10, err: p2p.ErrRefused},
		{name: "request far too large", request: make([]byte, 9<<20), maxResponse: 10, err: p2p.ErrRefused},
		{name: "refused", request: []byte("refuse"), maxResponse: 10, err: p2p.ErrRefused},
		{name: "handler gives too much", request: []byte("huge"), maxResponse: 1 << 30, err: p2p.ErrRefused},
		{name: "panic", request: []byte("panic"), maxResponse: 10, anyErr: true},
		{name: "answer after a panic", request: []byte("again"), maxResponse: 100, want: "re: again"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := a.Request(testContext(t), b.ID(), echo, test.request, test.maxResponse)
			if test.anyErr && err == nil || !errors.Is(err, test.err) && !test.anyErr {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if string(got) != test.want {
				t.Fatalf("got %d bytes, want %d", len(got), len(test.want))
			}
		})
	}
	if got := caller.Load(); got != a.ID() {
		t.Errorf("handler saw %v, want %v", got, a.ID())
	}
	if _, err := a.Request(testContext(t), nodes[2].ID(), echo, nil, 1); err == nil {
		t.Error("an unserved protocol answered")
	}
	sent, received := a.Bytes()
	if sent < 1<<20 || received < 1<<20 {
		t.Errorf("counted %d bytes sent and %d received", sent, received)
	}
}

func TestRequestEndsWithContext(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	started, ended := make(chan struct{}), make(chan struct{})
	nodes[1].Handle(echo, 10, func(ctx context.Context, _ identity.ID, _ []byte) ([]byte, error) {
		close(started)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		<-started
		cancel()
	}()
	if _, err := nodes[0].Request(ctx, nodes[1].ID(), echo, nil, 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if err := nodes[1].Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	default:
		t.Error("Close returned before the handler")
	}
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	release := make(chan struct{})
	arrived := make(chan struct{}, 2)
	limits := p2p.StreamLimits{PerPeer: 2, Total: 2, Timeout: p2ptest.Wait}
	nodes[1].HandleStream(echo, limits, func(context.Context, identity.ID, p2p.Stream) error {
		arrived <- struct{}{}
		<-release
		return nil
	})
	for range 2 {
		s, err := nodes[0].OpenStream(testContext(t), nodes[1].ID(), echo)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		<-arrived
	}
	_, err := nodes[0].Request(testContext(t), nodes[1].ID(), echo, nil, 1)
	close(release)
	if !errors.Is(err, p2p.ErrBusy) {
		t.Fatalf("error %v, want %v", err, p2p.ErrBusy)
	}
}

// TestHalfRequestsDoNotBlockAMember checks that members that each send the beginning of the maximum
// number of requests do not block the requests of another member.
func TestHalfRequestsDoNotBlockAMember(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b", "c", "d", "e", "f")
	handleEcho(nodes[0])
	for _, n := range nodes[2:] {
		for range 16 {
			s, err := n.OpenStream(testContext(t), nodes[0].ID(), echo)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Reset() })
			if _, err := s.Write([]byte{0}); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(200 * time.Millisecond) // until the streams have arrived
	begun := time.Now()
	if _, err := nodes[1].Request(testContext(t), nodes[0].ID(), echo, []byte("hi"), 10); err != nil {
		t.Fatalf("after %v: %v", time.Since(begun), err)
	}
}

// TestLargeRequestsTakeBoundedMemory checks that a member that sends parts of large requests is refused
// when it occupies its memory for requests. Its small requests, and requests of other members, are not
// refused.
func TestLargeRequestsTakeBoundedMemory(t *testing.T) {
	const most = 512 << 10
	nodes := p2ptest.New(t, "a", "b", "c")
	nodes[0].Handle(echo, most, func(_ context.Context, _ identity.ID, request []byte) ([]byte, error) { return nil, nil })
	for range 2 {
		s, err := nodes[1].OpenStream(testContext(t), nodes[0].ID(), echo)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Reset() }()
		if _, err := s.Write(binary.BigEndian.AppendUint32(nil, most)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(200 * time.Millisecond) // until the streams have arrived
	for _, test := range []struct {
		name string
		from *p2p.Node
		size int
		want error
	}{
		{"too much", nodes[1], most, p2p.ErrBusy},
		{"a small request", nodes[1], 4 << 10, nil},
		{"a different member", nodes[2], most, nil},
		{"again", nodes[2], most, nil},
	} {
		if _, err := test.from.Request(testContext(t), nodes[0].ID(), echo, make([]byte, test.size), 0); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v; want error %v", test.name, err, test.want)
		}
	}
}

// TestLargeRequestsCountAgainstTheUploadRate checks that a large request waits for the upload rate, after
// a burst.
func TestLargeRequestsCountAgainstTheUploadRate(t *testing.T) {
	const size, rate, burst = 512 << 10, 1 << 20, 256 << 10
	limited, err := p2p.New(context.Background(), p2p.Options{Key: p2ptest.Key("a"), Listen: p2ptest.Loopback, MaxUploadRate: rate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limited.Close() })
	other := p2ptest.Node(t, "b")
	p2ptest.Connect(t, limited, other)
	other.Handle(echo, size, func(context.Context, identity.ID, []byte) ([]byte, error) { return nil, nil })
	begun := time.Now()
	if _, err := limited.Request(testContext(t), other.ID(), echo, make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	if took, minimum := time.Since(begun), (size-burst)*time.Second/rate; took < minimum {
		t.Errorf("the request took %v, want at least %v", took, minimum)
	}
}

func TestNonMemberIsRefused(t *testing.T) {
	for _, transport := range p2ptest.Loopback {
		t.Run(transport, func(t *testing.T) {
			member, nonMember := p2ptest.Node(t, "member", transport), p2ptest.Node(t, "stranger", transport)
			handleEcho(member)
			handleEcho(nonMember)
			nonMember.SetMembers(p2ptest.Peers(member))
			if _, err := nonMember.Request(testContext(t), member.ID(), echo, []byte("hi"), 10); err == nil {
				t.Error("a non-member got an answer")
			}
			if _, err := member.Request(testContext(t), nonMember.ID(), echo, nil, 10); !errors.Is(err, p2p.ErrNotMember) {
				t.Errorf("request to a non-member: %v", err)
			}
			if got := member.Connected(); len(got) != 0 {
				t.Errorf("connected to %v", got)
			}
			member.SetMembers(p2ptest.Peers(nonMember))
			// The refused side may still believe that it is connected. The other side knows the
			// state.
			if err := member.WaitConnected(testContext(t), nonMember.ID()); err != nil {
				t.Fatal(err)
			}
			if _, err := nonMember.Request(testContext(t), member.ID(), echo, []byte("hi"), 10); err != nil {
				t.Errorf("request after admission: %v", err)
			}
		})
	}
}

func TestRevokedMemberIsDisconnected(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b", "c")
	a, b, c := nodes[0], nodes[1], nodes[2]
	for _, n := range nodes {
		handleEcho(n)
	}
	a.SetMembers(p2ptest.Peers(a, c))
	if a.IsMember(b.ID()) || !a.IsMember(a.ID()) || !a.IsMember(c.ID()) {
		t.Error("membership is wrong")
	}
	if err := p2p.WaitDisconnected(testContext(t), b, a.ID()); err != nil {
		t.Fatalf("still connected: %v", err)
	}
	if slices.Contains(a.Connected(), b.ID()) {
		t.Error("a former member is listed as connected")
	}
	if _, err := b.Request(testContext(t), a.ID(), echo, nil, 10); err == nil {
		t.Error("a former member got an answer")
	}
	if _, err := c.Request(testContext(t), a.ID(), echo, nil, 10); err != nil {
		t.Error(err)
	}
}

func TestReconnectsAfterRestart(t *testing.T) {
	a, b := p2ptest.Node(t, "a"), p2ptest.Node(t, "b")
	p2ptest.Connect(t, a, b)
	listen := b.Addrs()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = p2ptest.Node(t, "b", listen...)
	b.SetMembers([]p2p.Peer{{ID: a.ID()}}) // only a can dial
	if err := b.WaitConnected(testContext(t), a.ID()); err != nil {
		t.Fatal(err)
	}
}

func TestPrefersTCPOnLoopback(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	for _, transport := range p2p.Transports(nodes[0], nodes[1].ID()) {
		if transport != "tcp" {
			t.Errorf("connected over %s", transport)
		}
	}
}

func TestMembersWithBadAddresses(t *testing.T) {
	a, b := p2ptest.Node(t, "a"), p2ptest.Node(t, "b")
	bad := []string{
		"", "127.0.0.1:4001", "/ip4/127.0.0.1", "/ip4/127.0.0.1/tcp/99999", "/unix/tmp/socket",
		"/ip4/127.0.0.1/udp/1/quic-v1/webtransport", "/ip4/127.0.0.1/tcp/1/ws",
		"/ip4/127.0.0.1/tcp/1/p2p/12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo",
		"/ip4/127.0.0.1/tcp/1/p2p-circuit", "/dns4/" + strings.Repeat("x", 1000) + "/tcp/1",
	}
	a.SetMembers([]p2p.Peer{{ID: b.ID(), Addrs: append(bad, b.Addrs()...)}, {ID: identity.ID{1}, Addrs: bad}})
	b.SetMembers([]p2p.Peer{{ID: a.ID()}})
	if err := b.WaitConnected(testContext(t), a.ID()); err != nil {
		t.Fatal(err)
	}
}

func TestGarbageOnTheListeningPorts(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	handleEcho(nodes[0])
	garbage := bytes.Repeat([]byte{0x16, 3, 1, 0xff, 0xff, 1, 0, 0xc3}, 400)
	for _, text := range nodes[0].Addrs() {
		network, address := dialArgs(t, text)
		for _, payload := range [][]byte{garbage, []byte("GET / HTTP/1.1\r\n\r\n"), make([]byte, 1200), {0xc0}} {
			conn, err := net.Dial(network, address)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write(payload)
			_ = conn.Close()
		}
	}
	if _, err := nodes[1].Request(testContext(t), nodes[0].ID(), echo, []byte("hi"), 10); err != nil {
		t.Fatal(err)
	}
}

func dialArgs(t *testing.T, text string) (network, address string) {
	addr, err := ma.NewMultiaddr(text)
	if err != nil {
		t.Fatal(err)
	}
	host, _ := addr.ValueForProtocol(ma.P_IP4)
	if port, err := addr.ValueForProtocol(ma.P_TCP); err == nil {
		return "tcp", net.JoinHostPort(host, port)
	}
	port, err := addr.ValueForProtocol(ma.P_UDP)
	if err != nil {
		t.Fatal(err)
	}
	return "udp", net.JoinHostPort(host, port)
}

func TestGarbageOnARequestStream(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	handleEcho(nodes[1])
	for _, payload := range [][]byte{{}, {0}, {0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 9, 1}} {
		s, err := nodes[0].OpenStream(testContext(t), nodes[1].ID(), echo)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Write(payload)
		_ = s.Close()
	}
	if _, err := nodes[0].Request(testContext(t), nodes[1].ID(), echo, []byte("hi"), 10); err != nil {
		t.Fatal(err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	tests := []struct {
		name    string
		options p2p.Options
	}{
		{"no listen address and no relay", p2p.Options{Key: p2ptest.Key("a"), NoRelay: true}},
		{"bad relay", p2p.Options{Key: p2ptest.Key("a"), Listen: p2ptest.Loopback, Relays: []string{"/ip4/127.0.0.1/tcp/1"}}},
		{"no key", p2p.Options{Listen: p2ptest.Loopback}},
		{"bad listen address", p2p.Options{Key: p2ptest.Key("a"), Listen: []string{"127.0.0.1"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if n, err := p2p.New(context.Background(), test.options); err == nil {
				_ = n.Close()
				t.Error("accepted")
			}
		})
	}
}

// TestNodeNeedsEveryListenAddress checks that a node does not start if one of its two addresses is
// in use. Peers could reach such a node over one transport only.
func TestNodeNeedsEveryListenAddress(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = used.Close() })
	_, port, _ := net.SplitHostPort(used.Addr().String())
	taken := "/ip4/127.0.0.1/tcp/" + port
	for _, listen := range [][]string{{taken, p2ptest.Loopback[1]}, {p2ptest.Loopback[1], taken}} {
		n, err := p2p.New(context.Background(), p2p.Options{Key: p2ptest.Key("a"), Listen: listen})
		if err == nil {
			_ = n.Close()
		}
		if err == nil || !strings.Contains(err.Error(), taken) {
			t.Errorf("%v: error %v, want an error that names %s", listen, err, taken)
		}
	}
}

func TestContextEndsTheNode(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	n, err := p2p.New(ctx, p2p.Options{Key: p2ptest.Key("a"), Listen: p2ptest.Loopback})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n.SetMembers([]p2p.Peer{{ID: identity.ID{1}}})
	if err := n.WaitConnected(context.Background(), identity.ID{1}); !errors.Is(err, p2p.ErrClosed) {
		t.Errorf("error %v", err)
	}
}
