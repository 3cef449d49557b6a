package accept

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/admission"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
)

var (
	errMalformed = errors.New("malformed")
	errTooSlow   = errors.New("too slow")
	errRefused   = errors.New("refused")
	errSilent    = errors.New("nothing to say")
)

// spoken is a protocol whose close reason is a frame of type 9 that contains the reason.
var spoken = Protocol{
	Malformed: func(reason string) error { return errors.Join(errMalformed, errors.New(reason)) },
	TooSlow:   func(reason string) error { return errors.Join(errTooSlow, errors.New(reason)) },
	CloseFrame: func(reason error) ([]byte, bool) {
		switch {
		case errors.Is(reason, errSilent):
			return nil, true
		case errors.Is(reason, errRefused), errors.Is(reason, errMalformed), errors.Is(reason, errTooSlow), errors.Is(reason, context.Canceled):
			return frame.Append(nil, 9, []byte(reason.Error())), true
		}
		return nil, false
	},
	CloseTimeout: time.Second,
}

func config(t *testing.T) *tls.Config {
	t.Helper()
	config, err := secure.ServerConfig(identity.FromSeed([identity.SeedSize]byte{1}))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func client(socket net.Conn) *tls.Conn {
	return secure.Client(socket, func(identity.ID) error { return nil })
}

// sockets returns both ends of a connection.
func sockets(t *testing.T) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if near, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// TestConn ends connections for several reasons. It checks the error on this side and the close
// reason that the client receives.
func TestConn(t *testing.T) {
	for _, test := range []struct {
		name   string
		client func(*tls.Conn)                      // called after the handshake
		server func(context.Context, *Conn) error   // called after the handshake
		end    func(context.CancelCauseFunc, *Conn) // ends the connection meanwhile; may be nil
		want   error
		hears  string // prefix of the close reason
	}{
		{name: "too long a frame", want: errMalformed, hears: "malformed",
			client: func(c *tls.Conn) { _, _ = c.Write(frame.Append(nil, 1, make([]byte, 100))) }},
		{name: "silence", want: errTooSlow, hears: "too slow"},
		{name: "half a frame", want: errTooSlow, hears: "too slow",
			client: func(c *tls.Conn) { _, _ = c.Write(frame.Append(nil, 1, make([]byte, 10))[:7]) }},
		{name: "hanging up", want: io.EOF, client: func(c *tls.Conn) { _ = c.CloseWrite() }},
		{name: "the server stops", want: context.Canceled, hears: "context canceled",
			end: func(hangUp context.CancelCauseFunc, _ *Conn) { hangUp(nil) }},
		{name: "a reason", want: errRefused, hears: "refused",
			end: func(hangUp context.CancelCauseFunc, _ *Conn) { hangUp(errRefused) }},
		{name: "nothing to say", want: errSilent,
			end: func(hangUp context.CancelCauseFunc, _ *Conn) { hangUp(errSilent) }},
		{name: "no close frame", want: errEvicted,
			end: func(hangUp context.CancelCauseFunc, _ *Conn) { hangUp(errEvicted) }},
		{name: "cut", want: net.ErrClosed, end: func(_ context.CancelCauseFunc, c *Conn) { c.Cut() }},
		{name: "nobody reads", want: errTooSlow,
			client: func(*tls.Conn) { time.Sleep(400 * time.Millisecond) },
			server: func(ctx context.Context, c *Conn) error {
				for {
					if err := c.BoundWrites(ctx, 200*time.Millisecond); err != nil {
						return err
					}
					if _, err := c.Write(frame.Append(nil, 1, make([]byte, 64<<10))); err != nil {
						if c.Whole() {
							return errors.New("a truncated frame, and another frame may follow")
						}
						return err
					}
				}
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			near, far := sockets(t)
			ctx, hangUp := context.WithCancelCause(t.Context())
			defer hangUp(nil)
			received := make(chan string, 1)
			go func() {
				c := client(near)
				defer func() { received <- lastWords(c) }()
				if c.Handshake() == nil && test.client != nil {
					test.client(c)
				}
			}()
			c := NewConn(ctx, far, config(t), &spoken)
			err := c.Handshake(ctx, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if test.end != nil {
				time.AfterFunc(20*time.Millisecond, func() { test.end(hangUp, c) })
			}
			if test.server != nil {
				err = test.server(ctx, c)
			} else if err = c.BoundReads(ctx, 300*time.Millisecond); err == nil {
				_, _, err = c.Next(ctx, 64)
			}
			if !errors.Is(err, test.want) {
				t.Errorf("ended with %v, want %v", err, test.want)
			}
			c.Close(err)
			if words := <-received; !strings.HasPrefix(words, test.hears) || test.hears == "" && words != "" {
				t.Errorf("the client received %q, want %q", words, test.hears)
			}
		})
	}
}

// TestUnreadInput refuses a client that is sending. A pipe has no buffer, so the client can finish
// only if the server reads its input.
func TestUnreadInput(t *testing.T) {
	near, far := net.Pipe()
	sent, received := make(chan error, 1), make(chan string, 1)
	go func() {
		c := client(near)
		err := c.Handshake()
		go func() {
			received <- lastWords(c)
			_, _ = io.Copy(io.Discard, c) // the end of TLS
		}()
		if err == nil {
			_, err = c.Write(make([]byte, drainBytes/2))
		}
		sent <- err
	}()
	c := NewConn(t.Context(), far, config(t), &spoken)
	if err := c.Handshake(t.Context(), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	c.Close(errRefused)
	if err := <-sent; err != nil {
		t.Errorf("the client could not finish its frame: %v", err)
	}
	if words := <-received; words != "refused" {
		t.Errorf("the client received %q", words)
	}
}

// lastWords returns the close reason that a client receives.
func lastWords(c *tls.Conn) string {
	for r := frame.NewReader(bufio.NewReader(c)); ; {
		kind, payload, err := r.Next(1 << 20)
		switch {
		case err != nil:
			return ""
		case kind == 9:
			return string(payload)
		}
	}
}

// TestNoCloseFrameWithoutTLS checks that a client that does not use TLS does not get a close reason.
func TestNoCloseFrameWithoutTLS(t *testing.T) {
	near, far := sockets(t)
	if _, err := near.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	c := NewConn(t.Context(), far, config(t), &spoken)
	err := c.Handshake(t.Context(), 5*time.Second)
	if _, isHeader := errors.AsType[tls.RecordHeaderError](err); !isHeader || c.Whole() {
		t.Errorf("error %v", err)
	}
	c.Close(errRefused)
	if said, _ := io.ReadAll(near); strings.Contains(string(said), "refused") {
		t.Errorf("logged %q", said)
	}
}

// TestSlowHandshake checks that a missing handshake ends the connection.
func TestSlowHandshake(t *testing.T) {
	_, far := sockets(t)
	c := NewConn(t.Context(), far, config(t), &spoken)
	if err := c.Handshake(t.Context(), 20*time.Millisecond); !errors.Is(err, errTooSlow) {
		t.Errorf("error %v", err)
	}
	c.Close(errTooSlow)
}

// TestEndedContext checks that a connection neither reads nor writes after the end of its context.
func TestEndedContext(t *testing.T) {
	_, far := sockets(t)
	ctx, hangUp := context.WithCancelCause(t.Context())
	hangUp(errRefused)
	c := NewConn(ctx, far, config(t), &spoken)
	for name, err := range map[string]error{
		"handshake": c.Handshake(ctx, time.Hour), "reads": c.BoundReads(ctx, time.Hour), "writes": c.BoundWrites(ctx, time.Hour),
	} {
		if !errors.Is(err, errRefused) {
			t.Errorf("%s: got %v; want error errRefused", name, err)
		}
	}
	c.Close(errRefused)
}

// fakeListener returns the sockets from its channel, and an error for nil.
type fakeListener struct {
	net.Listener
	sockets chan net.Conn
	ended   chan struct{}
}

var errNoDescriptor = errors.New("too many open files")

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case socket := <-l.sockets:
		if socket == nil {
			return nil, errNoDescriptor
		}
		return socket, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *fakeListener) Close() error {
	close(l.ended)
	return nil
}

// TestAcceptor fills all slots, identifies a client, rejects a second client, and stops.
func TestAcceptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := &fakeListener{sockets: make(chan net.Conn), ended: make(chan struct{})}
		var log strings.Builder
		var served, turned atomic.Int32
		known := make(chan struct{})
		acceptor := Acceptor{
			Limiter: admission.NewLastingLimiter(1), Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Noise: rate.NewLimiter(10, 100), TurnedAway: func() { turned.Add(1) },
			Serve: func(ctx context.Context, _ context.CancelCauseFunc, socket net.Conn, identified func()) {
				served.Add(1)
				select {
				case <-known:
					identified()
				case <-ctx.Done():
				}
				<-ctx.Done()
				_ = socket.Close()
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		var working, accepting sync.WaitGroup
		accepting.Go(func() { acceptor.Accept(ctx, listener, &working) })
		visit := func() {
			near, far := net.Pipe()
			t.Cleanup(func() { _ = near.Close() })
			listener.sockets <- far
			synctest.Wait()
		}
		expect := func(wantServed, wantTurned int32) {
			t.Helper()
			if s, n := served.Load(), turned.Load(); s != wantServed || n != wantTurned {
				t.Errorf("%d served, %d rejected, want %d and %d", s, n, wantServed, wantTurned)
			}
		}
		visit()
		expect(1, 0)
		visit()
		expect(1, 1)
		known <- struct{}{} // the first client is identified
		synctest.Wait()
		visit()
		expect(2, 1)
		begun := time.Now()
		listener.sockets <- nil
		visit()
		if paused := time.Since(begun); paused != pauseAfterError || !strings.Contains(log.String(), errNoDescriptor.Error()) {
			t.Errorf("after an error Accept paused %v and logged %q", paused, log.String())
		}
		cancel()
		accepting.Wait()
		working.Wait()
		expect(2, 2)
	})
}

// TestAcceptorEvicts checks that a newer connection evicts an older one.
func TestAcceptorEvicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := &fakeListener{sockets: make(chan net.Conn), ended: make(chan struct{})}
		reasons := make(chan error, admission.MaxWaiting+1)
		acceptor := Acceptor{
			Limiter: admission.NewLimiter(), Logger: slog.New(slog.DiscardHandler), Noise: rate.NewLimiter(10, 100), TurnedAway: func() { t.Error("rejected") },
			Serve: func(ctx context.Context, _ context.CancelCauseFunc, socket net.Conn, _ func()) {
				<-ctx.Done()
				reasons <- context.Cause(ctx)
				_ = socket.Close()
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		var working, accepting sync.WaitGroup
		accepting.Go(func() { acceptor.Accept(ctx, listener, &working) })
		for i := range admission.MaxWaiting + 1 {
			if i == admission.MaxWaiting {
				time.Sleep(admission.Grace)
			}
			_, far := net.Pipe()
			listener.sockets <- far
		}
		if err := <-reasons; !errors.Is(err, errEvicted) {
			t.Errorf("the oldest connection ended with %v", err)
		}
		cancel()
		accepting.Wait()
		working.Wait()
	})
}
