package accept

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/net/admission"
)

// errEvicted ends a connection that is evicted in favour of another.
var errEvicted = errors.New("evicted for a newer connection before its handshake")

// pauseAfterError is the pause before the next attempt to accept a connection, for example if the
// process has no file descriptors left.
const pauseAfterError = 100 * time.Millisecond

// Acceptor accepts connections while its Limiter has capacity.
type Acceptor struct {
	Limiter *admission.Limiter // for connections that have not identified themselves yet
	Logger  *slog.Logger
	Noise   *rate.Limiter // limits log lines that unknown clients can cause
	// TurnedAway is called for each connection that is refused for lack of capacity.
	TurnedAway func()
	// Serve owns a socket until its client or ctx ends, and closes it. hangUp ends ctx. Serve calls
	// identified once the client has identified itself, which frees the connection's slot in
	// Limiter.
	Serve func(ctx context.Context, hangUp context.CancelCauseFunc, socket net.Conn, identified func())
}

// Accept accepts connections until ctx ends, and then closes the listener. Connections that are
// still being served at that time remain counted in working.
func (a *Acceptor) Accept(ctx context.Context, listener net.Listener, working *sync.WaitGroup) {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for ctx.Err() == nil {
		socket, err := listener.Accept()
		if err != nil {
			a.pause(ctx, err)
			continue
		}
		a.admit(ctx, working, socket)
	}
}

// pause prevents a busy loop if the listener keeps failing.
func (a *Acceptor) pause(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	a.Logger.Error("accepting a connection failed", "error", err)
	_ = pause.For(ctx, pauseAfterError)
}

// admit starts to serve a connection, if there is a slot for it.
func (a *Acceptor) admit(ctx context.Context, working *sync.WaitGroup, socket net.Conn) {
	ctx, hangUp := context.WithCancelCause(ctx)
	slot := a.Limiter.Enter(socket.RemoteAddr(), func() { hangUp(errEvicted) })
	if slot == nil {
		hangUp(nil)
		_ = socket.Close()
		a.TurnedAway()
		if a.Noise.Allow() {
			a.Logger.Warn("refused a connection: too many without a handshake", "remote", socket.RemoteAddr().String())
		}
		return
	}
	working.Go(func() {
		defer hangUp(nil)
		defer a.Limiter.Leave(slot)
		a.Serve(ctx, hangUp, observed{socket, slot}, func() { a.Limiter.Leave(slot) })
	})
}

// observed records that a connection has sent something.
type observed struct {
	net.Conn
	slot *admission.Slot
}

// NetConn returns the socket.
func (o observed) NetConn() net.Conn { return o.Conn }

func (o observed) Read(b []byte) (int, error) {
	n, err := o.Conn.Read(b)
	if n > 0 {
		o.slot.Spoke()
	}
	return n, err
}
