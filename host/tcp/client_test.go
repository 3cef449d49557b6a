package tcp_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/follow"
)

const waitTimeout = 30 * time.Second

// fast returns options with short pauses.
func fast(address string) tcp.Options {
	return tcp.Options{
		Addr: address, RunID: backendtest.RunID, Key: backendtest.Key(1),
		InitialInterval: time.Millisecond, MaxInterval: 10 * time.Millisecond,
	}
}

// elapsed matches the duration of attempts in messages, which varies.
var elapsed = regexp.MustCompile(` in \S+; check`)

// message compares a message without the duration of the attempts.
func message(t *testing.T, name string, err error) {
	t.Helper()
	if err != nil {
		err = errors.New(elapsed.ReplaceAllString(err.Error(), " in TIME; check"))
	}
	golden.Message(t, name, err)
}

// freeAddress returns an address without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestDialRefusesBadOptions(t *testing.T) {
	for name, change := range map[string]func(*tcp.Options){
		"no port":     func(o *tcp.Options) { o.Addr = "localhost" },
		"no run":      func(o *tcp.Options) { o.RunID = "" },
		"long run":    func(o *tcp.Options) { o.RunID = strings.Repeat("r", coordinator.MaxRunIDLength+1) },
		"bad address": func(o *tcp.Options) { o.Addrs = []string{""} },
	} {
		o := fast("127.0.0.1:1")
		change(&o)
		if _, err := tcp.Dial(t.Context(), o); err == nil || errors.Is(err, tcp.ErrUnreachable) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestDialTriesAgainAndThenSaysSo(t *testing.T) {
	address := freeAddress(t)
	o := fast(address)
	o.MaxAttempts = 4
	_, err := tcp.Dial(t.Context(), o)
	if !errors.Is(err, tcp.ErrUnreachable) {
		t.Fatalf("error %v, want ErrUnreachable", err)
	}
	message(t, "after 4 attempts", err)
	o.MaxAttempts, o.MaxElapsed = 0, 30*time.Millisecond
	if _, err := tcp.Dial(t.Context(), o); !errors.Is(err, tcp.ErrUnreachable) {
		t.Fatalf("error %v, want ErrUnreachable", err)
	}
}

func TestDialWaitsForALateServer(t *testing.T) {
	address := freeAddress(t)
	connected := make(chan error, 1)
	go func() {
		o := fast(address)
		o.MaxElapsed = waitTimeout
		c, err := tcp.Dial(context.Background(), o)
		if err == nil {
			err = c.Close()
		}
		connected <- err
	}()
	servertest.Start(t, server.Options{Listen: address, Runs: []server.Genesis{backendtest.Genesis(backendtest.RunID, 3)}})
	if err := <-connected; err != nil {
		t.Fatal(err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := tcp.Dial(ctx, fast(freeAddress(t))); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v, want DeadlineExceeded", err)
	}
}

// TestRequiredVersion connects with several versions to a server that requires a version, and to a server that requires a
// newer version after a restart.
func TestRequiredVersion(t *testing.T) {
	o := server.Options{
		Runs:     []server.Genesis{backendtest.Genesis(backendtest.RunID, 3)},
		Requires: release.Requirement{Version: "0.2.0", Address: "https://example.com/psyche"}, SaveStateDir: t.TempDir(),
	}
	s := servertest.Start(t, o)
	for n, version := range []string{"0.1.0", "0.2.0-dev", "0.3.0", ""} {
		for _, observe := range []bool{true, false} {
			reach := fast(s.Address)
			reach.Version, reach.Observe, reach.Key = version, observe, backendtest.Key(byte(1+n))
			c, err := tcp.Dial(t.Context(), reach)
			if version == "0.1.0" {
				if !errors.Is(err, release.ErrOutdated) {
					t.Errorf("version %q: %v, want ErrOutdated", version, err)
				}
				message(t, "old version", err)
				continue
			}
			if err != nil {
				t.Fatalf("version %q: %v", version, err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	reach := fast(s.Address)
	reach.Version = "0.2.0"
	c, err := tcp.Dial(t.Context(), reach)
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	o.Listen, o.Requires.Version = s.Address, "0.3.0"
	servertest.Start(t, o)
	for range c.Updates() {
	}
	if !errors.Is(c.Err(), release.ErrOutdated) {
		t.Errorf("after a restart: %v, want ErrOutdated", c.Err())
	}
}

func TestWrongRunIsPermanent(t *testing.T) {
	address := servertest.Start(t, server.Options{Runs: []server.Genesis{backendtest.Genesis("that-run", 3)}}).Address
	o := fast(address)
	o.RunID = "this-run"
	_, err := tcp.Dial(t.Context(), o)
	if !errors.Is(err, backend.ErrWrongRun) {
		t.Fatalf("error %v", err)
	}
	golden.Message(t, "error", err)
}

func TestLostServerEndsTheClientAfterTheTimeout(t *testing.T) {
	host := servertest.Start(t, server.Options{Runs: []server.Genesis{backendtest.Genesis(backendtest.RunID, 3)}})
	address := host.Address
	o := fast(address)
	o.ReconnectTimeout = 50 * time.Millisecond
	c, err := tcp.Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	host.Stop()
	for range c.Updates() {
		continue // until it is closed
	}
	if err := c.Err(); !errors.Is(err, tcp.ErrUnreachable) || !strings.Contains(err.Error(), address) {
		t.Fatalf("Err: %v", err)
	}
	if err := c.Submit(t.Context(), coordinator.Join{}); !errors.Is(err, backend.ErrClosed) {
		t.Fatalf("Submit: %v, want ErrClosed", err)
	}
}

func TestContextEndsTheClient(t *testing.T) {
	address := servertest.Start(t, server.Options{Runs: []server.Genesis{backendtest.Genesis(backendtest.RunID, 3)}}).Address
	ctx, cancel := context.WithCancel(t.Context())
	c, err := tcp.Dial(ctx, fast(address))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	cancel()
	for range c.Updates() {
		continue // until it is closed
	}
	if !errors.Is(c.Err(), context.Canceled) {
		t.Fatalf("Err: %v, want Canceled", c.Err())
	}
}

// fakeServer accepts connections and passes each to serve, until the test ends.
func fakeServer(t *testing.T, serve func(net.Conn, *frame.Reader)) string {
	t.Helper()
	config, err := secure.ServerConfig(backendtest.Key(200))
	if err != nil {
		t.Fatal(err)
	}
	return plainServer(t, func(socket net.Conn) {
		secured := tls.Server(socket, config)
		_ = secured.Handshake() // a client that refuses the handshake fails elsewhere in the test
		serve(secured, frame.NewReader(bufio.NewReader(secured)))
		_ = secured.CloseWrite()
	})
}

// plainServer is a fakeServer without TLS.
func plainServer(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var working sync.WaitGroup
	working.Go(func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			serve(socket)
			_ = socket.Close()
		}
	})
	t.Cleanup(func() { _ = listener.Close(); working.Wait() })
	return listener.Addr().String()
}

func send(socket net.Conn, kind frame.Type, payload []byte) {
	_, _ = socket.Write(frame.Append(nil, kind, payload))
}

// welcome performs the server's half of a handshake.
func welcome(socket net.Conn, reader *frame.Reader) {
	send(socket, frame.TypeChallenge, frame.Challenge{Version: frame.Version}.AppendTo(nil))
	_, _, _ = reader.Next(frame.MaxHello)
	send(socket, frame.TypeWelcome, frame.Welcome{Genesis: fakeGenesis(backendtest.RunID, 200)}.AppendTo(nil))
}

// fakeGenesis returns the genesis of a run whose server has the n-th key.
func fakeGenesis(runID string, n byte) []byte {
	key := backendtest.Key(n)
	state, err := backendtest.Genesis(runID, 3)(coordinator.ClientID(key.ID()))
	if err != nil {
		panic(err)
	}
	state.DrawCommitment = [32]byte{n}
	return follow.SignGenesis(key, [32]byte{n}, state.AppendTo(nil))
}

// TestServerWithoutTLS connects to a server that does not use TLS.
func TestServerWithoutTLS(t *testing.T) {
	o := fast(plainServer(t, func(s net.Conn) { _, _ = s.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n")) }))
	o.MaxAttempts = 2
	_, err := tcp.Dial(t.Context(), o)
	if !errors.Is(err, tcp.ErrUnreachable) {
		t.Fatalf("error %v", err)
	}
	message(t, "error", err)
}

// TestOnlyThePinnedServerIsTrusted connects with the server's key pinned, with a different key
// pinned, and without a pinned key.
func TestOnlyThePinnedServerIsTrusted(t *testing.T) {
	address := servertest.Start(t, server.Options{Runs: []server.Genesis{backendtest.Genesis(backendtest.RunID, 3)}}).Address
	known := filepath.Join(t.TempDir(), "known")
	o := fast(address)
	o.KnownServers = &secure.KnownServers{Path: known}
	c, err := tcp.Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	host := c.Host()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	o.ServerKey = host
	o.Key = backendtest.Key(9) // the server may not know yet that the first client has left
	if c, err = tcp.Dial(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	o.ServerKey = backendtest.Key(7).ID()
	_, err = tcp.Dial(t.Context(), o)
	if !errors.Is(err, tcp.ErrUntrusted) || !errors.Is(err, secure.ErrWrongServer) {
		t.Fatalf("error %v, want ErrWrongServer", err)
	}
	// A different server with the same address.
	o.ServerKey = identity.ID{}
	if err := os.WriteFile(known, []byte(address+" "+backendtest.Key(7).ID().String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = tcp.Dial(t.Context(), o)
	if !errors.Is(err, tcp.ErrUntrusted) || !errors.Is(err, secure.ErrServerChanged) || !strings.Contains(err.Error(), known) {
		t.Fatalf("error %v, want ErrServerChanged", err)
	}
}

func TestStrangeServers(t *testing.T) {
	tests := []struct {
		name  string
		serve func(net.Conn, *frame.Reader)
		want  error
	}{
		{"speaks another protocol", func(s net.Conn, _ *frame.Reader) { _, _ = s.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n")) },
			tcp.ErrUnreachable},
		{"begins with another frame", func(s net.Conn, _ *frame.Reader) { send(s, frame.TypePing, nil) },
			tcp.ErrUnreachable},
		{"is of another version", func(s net.Conn, _ *frame.Reader) { send(s, frame.TypeChallenge, []byte{frame.Version + 1, 1, 2}) },
			tcp.ErrRefused},
		{"is of the version before", func(s net.Conn, _ *frame.Reader) {
			send(s, frame.TypeChallenge, frame.Challenge{Version: frame.Version - 1}.AppendTo(nil))
		}, tcp.ErrRefused},
		{"is busy", func(s net.Conn, _ *frame.Reader) {
			send(s, frame.TypeRefusal, frame.Refusal{Code: frame.RefusedBusy, Reason: "full"}.AppendTo(nil))
		}, tcp.ErrUnreachable},
		{"hangs up", func(net.Conn, *frame.Reader) {}, tcp.ErrUnreachable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := fast(fakeServer(t, test.serve))
			o.MaxAttempts = 3
			_, err := tcp.Dial(t.Context(), o)
			if !errors.Is(err, test.want) {
				t.Fatalf("error %v, want %v", err, test.want)
			}
			message(t, "error", err)
		})
	}
}

// TestHelloIsGoodForOneServer lets a server forward the challenge of a second server. It checks
// that the second server refuses the client's hello, and that the client can still connect
// directly.
func TestHelloIsGoodForOneServer(t *testing.T) {
	address := servertest.Start(t, server.Options{Runs: []server.Genesis{backendtest.Genesis(backendtest.RunID, 3)}}).Address
	answers := make(chan error, 1)
	relay := fakeServer(t, func(s net.Conn, r *frame.Reader) { answers <- passOn(s, r, address) })
	o := fast(relay)
	o.MaxAttempts = 1
	if _, err := tcp.Dial(t.Context(), o); !errors.Is(err, tcp.ErrUnreachable) {
		t.Errorf("client of the relay: %v", err)
	}
	golden.Message(t, "the other server's answer to the hello", <-answers)
	c, err := tcp.Dial(t.Context(), fast(address))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// passOn forwards the challenge of the server at address to a client, and the client's hello to
// that server. It returns the refusal, or nil if the server does not refuse.
func passOn(client net.Conn, fromClient *frame.Reader, address string) error {
	socket, err := net.DialTimeout("tcp", address, waitTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	if err := socket.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
		return err
	}
	other := secure.Client(socket, func(identity.ID) error { return nil })
	fromOther := frame.NewReader(other)
	_, challenge, err := fromOther.Next(frame.MaxHello)
	if err != nil {
		return err
	}
	send(client, frame.TypeChallenge, challenge)
	_, hello, err := fromClient.Next(frame.MaxHello)
	if err != nil {
		return err
	}
	send(other, frame.TypeHello, hello)
	kind, payload, err := fromOther.Next(frame.MaxHello)
	if err != nil || kind != frame.TypeRefusal {
		return err
	}
	refusal, err := frame.DecodeRefusal(payload)
	if err == nil {
		err = errors.New(refusal.Reason)
	}
	return err
}

// TestSubmitInFlightIsLost checks that Submit returns ErrDisconnected if the server hangs up after
// it read the action, because the outcome is unknown.
func TestSubmitInFlightIsLost(t *testing.T) {
	address := fakeServer(t, func(s net.Conn, r *frame.Reader) {
		welcome(s, r)
		for {
			if kind, _, err := r.Next(frame.MaxToHost); err != nil || kind == frame.TypeSubmit {
				return
			}
		}
	})
	c, err := tcp.Dial(t.Context(), fast(address))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Submit(t.Context(), coordinator.Join{}); !errors.Is(err, backend.ErrDisconnected) {
		t.Fatalf("error %v, want ErrDisconnected", err)
	}
}

// TestBadFramesOfAServer sends frames that a correct server never sends. It checks that the client
// hangs up, reconnects, and returns no update.
func TestBadFramesOfAServer(t *testing.T) {
	for name, bad := range map[string][]byte{
		"no state":       frame.Append(nil, frame.TypeState, []byte("no state")),
		"no peers":       frame.Append(nil, frame.TypePeers, []byte{1}),
		"no ack":         frame.Append(nil, frame.TypeAck, []byte{1}),
		"client's frame": frame.Append(nil, frame.TypeSubmit, nil),
		"no base":        frame.Append(nil, frame.TypeStateDelta, frame.AppendDelta(nil, []byte("base"), []byte("base and more of it"))),
		"no delta":       frame.Append(nil, frame.TypePeersDelta, []byte{1}),
		"too long":       {0x7f, 0xff, 0xff, 0xff, 1},
	} {
		t.Run(name, func(t *testing.T) {
			connections := 0
			again := make(chan struct{})
			address := fakeServer(t, func(s net.Conn, r *frame.Reader) {
				if connections++; connections == 3 {
					close(again)
				}
				welcome(s, r)
				_, _ = s.Write(bad)
				_, _, _ = r.Next(frame.MaxToHost) // until the client hangs up
			})
			c, err := tcp.Dial(t.Context(), fast(address))
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-again:
			case u := <-c.Updates():
				t.Errorf("update %+v", u)
			case <-time.After(waitTimeout):
				t.Error("the client does not reconnect")
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestBytesAreCounted checks the byte counts of a client over two connections.
func TestBytesAreCounted(t *testing.T) {
	o := server.Options{Runs: []server.Genesis{backendtest.Genesis(backendtest.RunID, 3)}, SaveStateDir: t.TempDir()}
	host := servertest.Start(t, o)
	c, err := tcp.Dial(t.Context(), fast(host.Address))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	state := (<-c.Updates()).State
	sent, received := c.Bytes()
	if whole := uint64(len(state.AppendTo(nil))); sent < 200 || received < whole {
		t.Errorf("%d bytes sent, %d received, but the state alone has %d", sent, received, whole)
	}
	host.Stop()
	o.Listen = host.Address
	servertest.Start(t, o)
	for err = backend.ErrDisconnected; errors.Is(err, backend.ErrDisconnected); {
		err = c.Submit(t.Context(), coordinator.Join{})
	}
	if err != nil {
		t.Fatal(err)
	}
	moreSent, moreReceived := c.Bytes()
	if moreSent < 2*sent || moreReceived <= received {
		t.Errorf("after a second connection and a join: %d bytes sent, %d received", moreSent, moreReceived)
	}
}
