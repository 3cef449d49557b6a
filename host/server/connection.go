package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/net/accept"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/wire"
)

// Limits of one connection.
const (
	framesPerSecond = 50          // sustained; the server reads no more, so the sender has to wait
	framesBurst     = 200         // at once
	closeTimeout    = time.Second // for the other side to receive a refusal

	// pingBytes is the number of written bytes after which the writer adds a Ping, but at least
	// pingPause after the previous Ping. The client answers when it has read up to the Ping. A
	// client on a slow link therefore answers in time, even if much was written before the next
	// regular Ping.
	pingBytes = 32 << 10
	pingPause = 250 * time.Millisecond

	// maxUnsent limits the unsent bytes in the system's socket buffer.
	maxUnsent = 64 << 10
)

// connection is one client's socket. The goroutine of serveConnection reads, a second goroutine
// writes.
type connection struct {
	writer
	server *server
	host   *host // of the client's run; nil before the hello
	conn   *accept.Conn
	id     identity.ID // set by the hello
	role   frame.Role
	remote string
	origin core.Origin // set by the hello of a client that may take part
	logger *slog.Logger

	nonce    [32]byte      // of the challenge
	sequence uint64        // of the newest Hello
	follows  bool          // the client has requested the log; used by serveConnection's goroutine
	caught   atomic.Bool   // the client has once had the whole log
	watching bool          // counted in the server's observers
	leave    func()        // releases the slot for unknown clients, if the connection has one; guarded by the registry
	heard    chan struct{} // has a value after a frame was read
	ended    chan struct{} // closed when the key is free again
	probing  sync.Mutex    // one prober at a time
	hangUp   context.CancelCauseFunc
	working  sync.WaitGroup // goroutines that converse waits for
}

// writer is the state of the goroutine that writes to a client. Only this goroutine uses the first three fields; the others
// wake it.
type writer struct {
	sent     uint64    // records of the log that the client has; 0: it does not follow the log, or is catching up
	unpinged int       // bytes since the newest Ping
	pinged   time.Time // time of the newest Ping

	yields    bool          // it is sending a batch that must not take long while other clients wait
	published chan struct{} // has a value after a publication
	answers   chan answer
	probe     chan struct{} // asks for a Ping
}

// answer is a request to the writer to send whole frames, or a part of the journal or of the model.
// The writer reads such a part when it sends it.
type answer struct {
	frames [][]byte
	log    *logPart
	live   uint64          // records of the log that the client then has, and gets new records afterwards; 0: no change
	yields bool            // see connection
	sent   chan<- struct{} // closed when the client has received the frames; may be nil
}

// refusedError ends a connection with a Refusal.
type refusedError frame.Refusal

func (e *refusedError) Error() string { return e.Reason }

func refuse(code frame.RefusalCode, format string, values ...any) error {
	return &refusedError{Code: code, Reason: fmt.Sprintf(format, values...)}
}

// protocol limits the traffic of clients.
var protocol = accept.Protocol{
	Malformed:    func(reason string) error { return refuse(frame.RefusedMalformed, "%s", reason) },
	TooSlow:      func(reason string) error { return refuse(frame.RefusedTimeout, "%s", reason) },
	CloseFrame:   closeFrame,
	CloseTimeout: closeTimeout,
}

func closeFrame(reason error) ([]byte, bool) {
	if errors.Is(reason, errCreated) || errors.Is(reason, errListed) {
		return nil, true
	}
	refused, ok := errors.AsType[*refusedError](reason)
	switch {
	case ok:
	case errors.Is(reason, context.Canceled):
		refused = &refusedError{Code: frame.RefusedShutdown, Reason: "the server is shutting down"}
	default:
		return nil, false
	}
	return frame.Append(nil, frame.TypeRefusal, frame.Refusal(*refused).AppendTo(nil)), true
}

// serveConnection owns the socket until the client or ctx ends. hangUp ends ctx. serveConnection
// calls identified once the client is admitted, and not if it is refused.
func (s *server) serveConnection(ctx context.Context, hangUp context.CancelCauseFunc, socket net.Conn, identified func()) {
	remote := socket.RemoteAddr().String()
	accept.LimitUnsent(socket, maxUnsent)
	c := &connection{
		server: s, conn: accept.NewConn(ctx, counted{Conn: socket, metrics: s.metrics}, s.tls, &protocol),
		remote: remote, logger: s.logger.With("remote", remote), hangUp: hangUp,
		writer: writer{published: make(chan struct{}, 1), answers: make(chan answer, 1), probe: make(chan struct{}, 1)},
		heard:  make(chan struct{}, 1), ended: make(chan struct{}),
	}
	err := c.handshake(ctx)
	if err == nil {
		identified()
		err = c.serve(ctx)
	} else {
		c.report(err)
	}
	c.release()
	c.conn.Close(err)
}

// serve serves an admitted client until the connection ends.
func (c *connection) serve(ctx context.Context) error {
	c.logger = c.logger.With("run", c.host.runID)
	level := slog.LevelInfo
	if c.role == frame.RoleObserver { // every view of the run uses an observer connection
		level = slog.LevelDebug
	}
	c.logger.Log(ctx, level, "client connected", "role", c.role)
	c.event(EventConnected, "")
	err := c.converse(ctx)
	c.logger.Log(ctx, level, "client disconnected", "role", c.role, "reason", err)
	c.event(EventDisconnected, err.Error())
	return err
}

// report emits an event for a refused connection. It limits log messages that unknown clients can
// cause.
func (c *connection) report(err error) {
	if errors.Is(err, errCreated) || errors.Is(err, errListed) {
		return
	}
	if c.server.noise.Allow() {
		c.logger.Warn("refused a connection", "reason", err)
	}
	c.event(EventRefused, err.Error())
}

// event emits an event of this connection.
func (c *connection) event(kind EventKind, reason string) {
	e := Event{Kind: kind, Client: c.id, Remote: c.remote, Reason: reason}
	if c.host == nil {
		c.server.emit(e)
		return
	}
	e.Phase = c.host.newest.Load().phase
	c.host.emit(e)
}

// release releases the slots of the connection.
func (c *connection) release() {
	if c.host != nil {
		c.host.registry.release(c)
	}
	if c.watching {
		c.server.observers.release(c.id)
	}
	close(c.ended)
}

// evict evicts an unknown client in favour of another connection. It closes the socket at once,
// so that the number of open connections never exceeds the limit.
func (c *connection) evict() {
	c.hangUp(errEvicted)
	c.conn.Cut()
}

// counted counts the bytes of a socket.
type counted struct {
	net.Conn
	metrics *metrics
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.metrics.received.Add(float64(n))
	return n, err
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.metrics.sent.Add(float64(n))
	return n, err
}

// converse reads and writes until the connection ends, and returns the reason.
func (c *connection) converse(ctx context.Context) error {
	c.working.Go(func() { c.hangUp(c.writeLoop(ctx)) })
	c.hangUp(c.readLoop(ctx))
	c.working.Wait()
	return context.Cause(ctx)
}

// readLoop handles one frame after the other.
func (c *connection) readLoop(ctx context.Context) error {
	limiter := rate.NewLimiter(framesPerSecond, framesBurst)
	for {
		if err := limiter.Wait(ctx); err != nil {
			return context.Cause(ctx)
		}
		if err := c.conn.BoundReads(ctx, frame.IdleTimeout); err != nil {
			return err
		}
		kind, payload, err := c.conn.Next(ctx, frame.MaxToHost)
		if err != nil {
			return err
		}
		signal(c.heard)
		switch kind {
		case frame.TypePong:
			if len(payload) > 0 {
				err = refuse(frame.RefusedMalformed, "the pong has %d bytes, want 0", len(payload))
			}
		case frame.TypeHello:
			err = c.readHello(payload)
		case frame.TypeSubmit:
			err = c.readSubmit(ctx, payload)
		case frame.TypeFollow:
			err = c.readFollow(ctx, payload)
		case frame.TypeSign:
			err = c.readSign(payload)
		case frame.TypeReadLog, frame.TypeReadModel:
			err = c.readPart(ctx, limiter, kind, payload)
		default:
			err = refuse(frame.RefusedMalformed, "unexpected frame of type %d from a client", kind)
		}
		if err != nil {
			return err
		}
	}
}

// readHello processes new addresses.
func (c *connection) readHello(payload []byte) error {
	hello, err := frame.OpenHello(payload, c.nonce, c.server.key.ID())
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	if hello.ID != c.id || hello.RunID != c.host.runID || hello.Run != c.host.run || hello.Role != c.role || hello.Sequence <= c.sequence {
		return refuse(frame.RefusedMalformed, "a later hello must have the same client, run and role, and a higher sequence number")
	}
	c.sequence = hello.Sequence
	c.host.registry.setAddrs(c, hello.Addrs)
	return nil
}

// readSubmit passes an action to the host and waits for the result. A client therefore has at most
// one pending action in the host.
func (c *connection) readSubmit(ctx context.Context, payload []byte) error {
	submit, err := frame.DecodeSubmit(payload)
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	action, err := wire.OpenAction(submit.Action, c.host.run)
	if err != nil {
		return refuse(frame.RefusedMalformed, "action: %v", err)
	}
	if action.From != c.id {
		return refuse(frame.RefusedMalformed, "received an action signed by %s on the connection of %s", action.From, c.id)
	}
	if err := c.await(ctx, action); err != nil {
		return err
	}
	reply := make(chan error, 1)
	var refused error
	select {
	case c.host.requests <- request{action: action, from: c.conn.RemoteAddr(), reply: reply}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case refused = <-reply:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ack := frame.Ack{Request: submit.Request}
	if refused != nil {
		ack.Code, _ = errors.AsType[coordinator.Code](refused) // the core returns no other kind of error
		if text := refused.Error(); text != ack.Code.Error() {
			ack.Reason = text
		}
	}
	return c.answer(ctx, answer{frames: [][]byte{frame.Append(nil, frame.TypeAck, ack.AppendTo(nil))}})
}

// await waits until the key's rate limit permits an action and, for actions that can be repeated
// without end, until the journal's growth limit permits it.
func (c *connection) await(ctx context.Context, action wire.SignedAction) error {
	if err := c.server.actions.Of(c.id).Wait(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	switch action.Action.(type) {
	case coordinator.Join, coordinator.SetDelegates: // Withdraw needs no limit, because it needs a Join first
		return c.host.growth.Take(ctx, c.conn.RemoteAddr(), 1)
	}
	return nil
}

// answer passes an answer to the writer.
func (c *connection) answer(ctx context.Context, a answer) error {
	select {
	case c.answers <- a:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeLoop sends answers first and then new publications. It returns nil if ctx ends between two
// frames.
func (c *connection) writeLoop(ctx context.Context) error {
	ticker := time.NewTicker(frame.PingInterval)
	defer ticker.Stop()
	signal(c.published)
	var stateVersion, peersVersion uint64
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case a := <-c.answers:
			err = c.send(ctx, a)
		case <-c.probe:
			err = c.ping(ctx)
		case <-ticker.C:
			err = c.ping(ctx)
		case <-c.published:
			newest := c.host.newest.Load()
			if err = c.follow(ctx, "peers", newest.peers, &peersVersion); err == nil && c.role == frame.RoleObserver {
				err = c.follow(ctx, "state", newest.state, &stateVersion)
			}
			if err == nil {
				err = c.sendLog(ctx, &newest.log)
			}
		}
		if err != nil {
			return err
		}
	}
}

// follow sends the client everything from its version of a feed to the newest version.
func (c *connection) follow(ctx context.Context, name string, newest feed, version *uint64) error {
	frames, whole := newest.since(*version)
	if len(frames) == 0 {
		return nil
	}
	*version = newest.version
	how := "delta"
	if whole {
		how = "whole"
	}
	c.countPush(name, how, len(frames))
	return c.writeBytes(ctx, frames)
}

// send sends an answer.
func (c *connection) send(ctx context.Context, a answer) error {
	if a.log != nil {
		return c.writePart(ctx, *a.log)
	}
	c.yields = a.yields
	err := c.writeBytes(ctx, a.frames...)
	c.yields = false
	if err != nil {
		return err
	}
	if a.sent != nil {
		close(a.sent)
	}
	if a.live > 0 {
		c.sent = a.live
		signal(c.published) // there may be new records by now
		if !c.caught.Swap(true) && c.role == frame.RoleParticipant {
			signal(c.host.registry.changed)
		}
	}
	return nil
}

func (c *connection) write(ctx context.Context, kind frame.Type, payload []byte) error {
	return c.writeBytes(ctx, frame.Append(nil, kind, payload))
}

// ping sends a Ping, which a live client must answer.
func (c *connection) ping(ctx context.Context) error {
	c.unpinged, c.pinged = 0, time.Now()
	return c.writeSteadily(ctx, frame.Append(nil, frame.TypePing, nil))
}

// writeBytes sends whole frames, which may be split over several slices. It disconnects a client
// that does not read; see writeTimeout. If ctx has ended, writeBytes sends nothing and returns nil.
func (c *connection) writeBytes(ctx context.Context, frames ...[]byte) error {
	if err := c.writeSteadily(ctx, frames...); err != nil {
		return err
	}
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	c.tookBytes(ctx, size)
	if c.host == nil || c.unpinged < pingBytes || time.Since(c.pinged) < pingPause {
		return nil
	}
	return c.ping(ctx)
}

// tookBytes records that the client is receiving bytes, so that it does not count as silent.
func (c *connection) tookBytes(ctx context.Context, n int) {
	c.unpinged += n
	if n >= pingBytes && c.host != nil {
		c.conn.ExtendReads(ctx, frame.IdleTimeout)
	}
}

func (c *connection) writeSteadily(ctx context.Context, frames ...[]byte) error {
	if ctx.Err() != nil {
		return nil
	}
	return c.conn.WriteSteadily(ctx, c.writeTimeout, frames...)
}

// writeTimeout returns the time in which the client has to receive the next 16 KiB.
func (c *connection) writeTimeout() time.Duration {
	if c.yields && c.server.catching.held.Crowded() {
		return crowdedTimeout
	}
	return frame.WriteTimeout
}
