package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/wire"
)

const hostileRun = "hostile"

// pipeListener accepts one end of each pipe. Unlike sockets, pipes have no buffer and work with the
// virtual time of synctest.
type pipeListener struct {
	sockets chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.sockets:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// bubble runs test with a server on virtual time.
func bubble(t *testing.T, change func(*Options), test func(*testing.T, func() *peer)) {
	bubbleOfAddresses(t, change, func(t *testing.T, connectFrom func(net.Addr) *peer) {
		test(t, func() *peer { return connectFrom(nil) })
	})
}

// remoteConn is a connection from an address.
type remoteConn struct {
	net.Conn
	from net.Addr
}

func (c remoteConn) RemoteAddr() net.Addr { return c.from }

// bubbleOfAddresses is like bubble, for clients with several addresses. A client with a nil address has
// no network.
func bubbleOfAddresses(t *testing.T, change func(*Options), test func(*testing.T, func(net.Addr) *peer)) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Runs: []Genesis{backendtest.Genesis(hostileRun, 3)}, WithdrawGrace: -1}
		if change != nil {
			change(&o)
		}
		o.setDefaults()
		s, err := newServer(o)
		if err != nil {
			t.Fatal(err)
		}
		listener := &pipeListener{sockets: make(chan net.Conn), closed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := s.serve(ctx, listener, nil); err != nil {
				t.Error(err)
			}
		})
		var peers []*peer
		test(t, func(from net.Addr) *peer {
			near, far := net.Pipe()
			if from != nil {
				far = remoteConn{far, from}
			}
			listener.sockets <- far
			p := secured(t, near)
			peers = append(peers, p)
			return p
		})
		cancel()
		synctest.Wait() // connected clients receive the close reason
		for _, p := range peers {
			_ = p.socket.Close()
		}
		serving.Wait()
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
}

// secured returns the client's end of a connection.
func secured(t *testing.T, socket net.Conn) *peer {
	p := &peer{t: t}
	client := secure.Client(socket, func(found identity.ID) error { p.server = found; return nil })
	p.socket, p.reader = client, frame.NewReader(client)
	return p
}

// peer is a client that a test controls.
type peer struct {
	t      *testing.T
	socket net.Conn
	reader *frame.Reader
	nonce  [32]byte
	server identity.ID // identity that the server has proved
	key    identity.Key
	run    [32]byte // hash of the run, after the welcome
}

// expect reads until a frame of the type arrives. It skips pings, states and peers.
func (p *peer) expect(want frame.Type) []byte {
	p.t.Helper()
	for {
		kind, payload, err := p.reader.Next(frame.MaxToClient)
		if err != nil {
			p.t.Fatalf("waiting for type %d: %v", want, err)
		}
		switch kind {
		case want:
			return payload
		case frame.TypePing, frame.TypeState, frame.TypePeers, frame.TypeStateDelta, frame.TypePeersDelta:
		default:
			p.t.Fatalf("type %d (%q), want %d", kind, payload, want)
		}
	}
}

func (p *peer) send(kind frame.Type, payload []byte) {
	p.t.Helper()
	if _, err := p.socket.Write(frame.Append(nil, kind, payload)); err != nil {
		p.t.Fatal(err)
	}
}

// challenge reads the first frame.
func (p *peer) challenge() {
	p.t.Helper()
	c, err := frame.DecodeChallenge(p.expect(frame.TypeChallenge))
	if err != nil {
		p.t.Fatal(err)
	}
	p.nonce = c.Nonce
}

// hello answers the challenge with the n-th key.
func (p *peer) hello(n byte, run string) {
	p.t.Helper()
	p.challenge()
	p.key = backendtest.Key(n)
	p.send(frame.TypeHello, frame.Hello{Role: frame.RoleParticipant, RunID: run}.Sign(nil, p.key, p.nonce, p.server))
}

// greet answers the challenge in a role.
func (p *peer) greet(n byte, role frame.Role) {
	p.t.Helper()
	p.challenge()
	p.send(frame.TypeHello, frame.Hello{Role: role, RunID: hostileRun}.Sign(nil, backendtest.Key(n), p.nonce, p.server))
	p.key = backendtest.Key(n)
}

// raw returns the socket below TLS.
func (p *peer) raw() net.Conn { return p.socket.(*tls.Conn).NetConn() }

// submit sends an action and waits for its acceptance.
func (p *peer) submit(a coordinator.Action) {
	p.t.Helper()
	_ = p.submitted(a)
}

// submitted sends an action and returns the code of its answer.
func (p *peer) submitted(a coordinator.Action) coordinator.Code {
	p.t.Helper()
	p.send(frame.TypeSubmit, frame.Submit{Action: wire.SignAction(p.key, p.run, uint64(time.Now().UnixNano()), a)}.AppendTo(nil))
	ack, err := frame.DecodeAck(p.expect(frame.TypeAck))
	if err != nil {
		p.t.Fatal(err)
	}
	return ack.Code
}

// enter performs the whole handshake.
func (p *peer) enter(n byte) *peer {
	p.t.Helper()
	p.hello(n, hostileRun)
	p.welcome()
	return p
}

// welcome reads the welcome and stores the hash of the run.
func (p *peer) welcome() {
	p.t.Helper()
	welcome, err := frame.DecodeWelcome(p.expect(frame.TypeWelcome))
	if err != nil {
		p.t.Fatal(err)
	}
	p.run = wire.HostedRun(welcome.Genesis)
}

// refused waits for a refusal and the end of the connection. All refusals of one test have the same
// reason.
func (p *peer) refused(code frame.RefusalCode) {
	p.t.Helper()
	r, err := frame.DecodeRefusal(p.expect(frame.TypeRefusal))
	if err != nil {
		p.t.Fatal(err)
	}
	if r.Code != code {
		p.t.Fatalf("refused with code %d: %s; want code %d", r.Code, r.Reason, code)
	}
	golden.Message(p.t, "reason", errors.New(r.Reason), fmt.Sprintf("%x", p.run), "RUN")
	if _, _, err := p.reader.Next(frame.MaxToClient); !errors.Is(err, io.EOF) {
		p.t.Fatalf("after the refusal: %v, want EOF", err)
	}
}

// works checks that the server still serves clients.
func works(t *testing.T, connect func() *peer) {
	t.Helper()
	p := connect().enter(200)
	p.send(frame.TypeSubmit, frame.Submit{Request: 7, Action: wire.SignAction(backendtest.Key(200), p.run, 1, coordinator.Join{})}.AppendTo(nil))
	ack, err := frame.DecodeAck(p.expect(frame.TypeAck))
	if err != nil || ack.Request != 7 || ack.Code != 0 {
		t.Fatalf("ack %+v, %v", ack, err)
	}
}

// signed returns a Submit of the n-th key.
func signed(n byte, run [32]byte, a coordinator.Action) []byte {
	return frame.Submit{Action: wire.SignAction(backendtest.Key(n), run, 1, a)}.AppendTo(nil)
}

func TestBadFramesEndTheConnection(t *testing.T) {
	raw := func(s string) func(*peer) { return func(p *peer) { _, _ = p.socket.Write([]byte(s)) } }
	tests := []struct {
		name    string
		entered bool
		send    func(*peer)
		code    frame.RefusalCode
	}{
		{"web browser", false, raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), frame.RefusedMalformed},
		{"empty frame", false, raw("\x00\x00\x00\x00"), frame.RefusedMalformed},
		{"long hello", false, func(p *peer) {
			go func() { _, _ = p.socket.Write(frame.Append(nil, frame.TypeHello, make([]byte, frame.MaxHello))) }() // the server closes the connection before it reads all
		}, frame.RefusedMalformed},
		{"submit before hello", false, func(p *peer) { p.send(frame.TypeSubmit, signed(1, p.run, coordinator.Join{})) }, frame.RefusedMalformed},
		{"unsigned hello", false, func(p *peer) { p.send(frame.TypeHello, make([]byte, 200)) }, frame.RefusedMalformed}, // zeros: this also tests the zero key
		{"hello for another challenge", false, func(p *peer) {
			p.send(frame.TypeHello, frame.Hello{Role: frame.RoleParticipant, RunID: hostileRun}.Sign(nil, backendtest.Key(1), [32]byte{}, p.server))
		}, frame.RefusedMalformed},
		{"hello for another server", false, func(p *peer) {
			p.send(frame.TypeHello, frame.Hello{Role: frame.RoleParticipant, RunID: hostileRun}.Sign(nil, backendtest.Key(1), p.nonce, backendtest.Key(2).ID()))
		}, frame.RefusedMalformed},
		{"wrong run", false, func(p *peer) {
			p.send(frame.TypeHello, frame.Hello{Role: frame.RoleParticipant, RunID: "other"}.Sign(nil, backendtest.Key(1), p.nonce, p.server))
		}, frame.RefusedWrongRun},
		{"oversized frame", true, raw("\x7f\xff\xff\xff\x0a"), frame.RefusedMalformed},
		{"unknown type", true, func(p *peer) { p.send(99, nil) }, frame.RefusedMalformed},
		{"frame of a server", true, func(p *peer) { p.send(frame.TypeState, nil) }, frame.RefusedMalformed},
		{"pong with payload", true, func(p *peer) { p.send(frame.TypePong, []byte("x")) }, frame.RefusedMalformed},
		{"short submit", true, func(p *peer) { p.send(frame.TypeSubmit, []byte("x")) }, frame.RefusedMalformed},
		{"garbage action", true, func(p *peer) { p.send(frame.TypeSubmit, make([]byte, 300)) }, frame.RefusedMalformed},
		{"action of another run", true, func(p *peer) {
			p.send(frame.TypeSubmit, signed(1, wire.HostedRun([]byte("other")), coordinator.Join{}))
		}, frame.RefusedMalformed},
		{"action of another key", true, func(p *peer) { p.send(frame.TypeSubmit, signed(2, p.run, coordinator.Join{})) }, frame.RefusedMalformed},
		{"hello again, same sequence", true, func(p *peer) {
			p.send(frame.TypeHello, frame.Hello{Role: frame.RoleParticipant, RunID: hostileRun}.Sign(nil, backendtest.Key(1), p.nonce, p.server))
		}, frame.RefusedMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, connect func() *peer) {
				p := connect()
				if test.entered {
					p.enter(1)
				} else {
					p.challenge()
				}
				test.send(p)
				p.refused(test.code)
				works(t, connect)
			})
		})
	}
}

func TestSilentHandshakeIsCutOff(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		began := time.Now()
		p := connect()
		p.challenge()
		p.refused(frame.RefusedTimeout)
		if took := time.Since(began); took != frame.HandshakeTimeout {
			t.Fatalf("cut off after %v", took)
		}
		works(t, connect)
	})
}

// TestTrickledFrameIsCutOff sends one byte per second of a frame, which never becomes complete.
func TestTrickledFrameIsCutOff(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		p := connect().enter(1)
		began := time.Now()
		var trickling sync.WaitGroup
		defer trickling.Wait()
		trickling.Go(func() {
			for _, b := range frame.Append(nil, frame.TypeSubmit, make([]byte, 1000)) {
				if _, err := p.socket.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		p.refused(frame.RefusedTimeout)
		if took := time.Since(began); took != frame.IdleTimeout {
			t.Fatalf("cut off after %v", took)
		}
	})
}

func TestClientWithoutPongIsCutOff(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		p := connect().enter(1)
		began := time.Now()
		p.refused(frame.RefusedTimeout)
		if took := time.Since(began); took != frame.IdleTimeout {
			t.Fatalf("cut off after %v", took)
		}
	})
}

func TestClientThatDoesNotReadIsCutOff(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		deaf := connect().enter(1)
		works(t, connect) // other clients are not delayed
		time.Sleep(frame.WriteTimeout + time.Second)
		synctest.Wait()
		if _, err := deaf.socket.Write([]byte{0}); !errors.Is(err, io.ErrClosedPipe) {
			t.Fatalf("write: %v, want a closed connection", err)
		}
	})
}

// alive reads everything and answers pings until the connection ends.
func (p *peer) alive() {
	for {
		kind, _, err := p.reader.Next(frame.MaxToClient)
		if err != nil {
			return
		}
		if kind == frame.TypePing {
			_, _ = p.socket.Write(frame.Append(nil, frame.TypePong, nil))
		}
	}
}

func TestSecondClientOfAKeyIsRefused(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		go connect().enter(1).alive()
		for range 3 {
			p := connect()
			p.hello(1, hostileRun)
			p.refused(frame.RefusedDuplicateKey)
		}
		works(t, connect)
	})
}

// TestHalfDeadClientIsReplaced reconnects while the server still has the old connection of a
// machine that vanished.
func TestHalfDeadClientIsReplaced(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		connect().enter(1) // the old connection no longer reads or writes
		began := time.Now()
		connect().enter(1)
		if took := time.Since(began); took > probeTimeout+closeTimeout {
			t.Fatalf("accepted after %v", took)
		}
	})
}

// TestFloodIsSlowedDown sends many frames as fast as the server accepts them.
func TestFloodIsSlowedDown(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		p := connect().enter(1)
		go func() { _, _ = io.Copy(io.Discard, p.socket) }()
		const frames = 1200
		began := time.Now()
		for range frames {
			p.send(frame.TypePong, nil)
		}
		want := (frames - framesBurst) * time.Second / framesPerSecond
		if took := time.Since(began); took < want-time.Second || took > want+time.Second {
			t.Fatalf("%d frames took %v, want about %v", frames, took, want)
		}
		works(t, connect)
	})
}

func TestShutdownIsAnnounced(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		p := connect().enter(1)
		go func() {
			for {
				kind, payload, err := p.reader.Next(frame.MaxToClient)
				if err != nil {
					t.Errorf("no refusal: %v", err)
					return
				}
				if kind == frame.TypeRefusal {
					if r, err := frame.DecodeRefusal(payload); err != nil || r.Code != frame.RefusedShutdown {
						t.Errorf("refusal %+v, %v", r, err)
					}
					return
				}
			}
		}()
		time.Sleep(time.Second)
	})
}

// TestRandomBytes sends random bytes, before and after the handshake.
func TestRandomBytes(t *testing.T) {
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		random := rand.NewChaCha8([32]byte{1})
		for i := range 100 {
			p := connect()
			if i%2 == 0 {
				p.enter(byte(1 + i))
			} else {
				p.challenge()
			}
			noise := make([]byte, 1+random.Uint64()%300)
			_, _ = random.Read(noise)
			copy(noise, []byte{0, 0}) // otherwise every length would be too large
			go func() {
				_, _ = io.Copy(p.socket, bytes.NewReader(noise))
				_ = p.socket.SetReadDeadline(time.Now().Add(time.Second))
				p.alive()
				_ = p.socket.Close()
			}()
		}
		time.Sleep(10 * time.Second)
		works(t, connect)
	})
}
