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
	framesPerSecond = 50          // sustained; more is not read, so the sender has to wait
	framesBurst     = 200         // at once
	farewellTimeout = time.Second // for a refusal to reach the other side

	// After pingBytes, and not before pingPause, a Ping follows at once. The client answers when it has read so far,
	// and so a client on a slow link answers in time although much was written before the next regular Ping.
	pingBytes = 32 << 10
	pingPause = 250 * time.Millisecond

	// maxUnsent bounds the bytes that the system keeps before it sends them.
	maxUnsent = 64 << 10
)

// connection is one client's socket. serveConnection's goroutine reads, a second one writes.
type connection struct {
	server *server
	host   *host // of the client's run; nil before the hello
	conn   *accept.Conn
	id     identity.ID // known after the hello
	role   frame.Role
	remote string
	origin core.Origin // known after the hello of a client that may take part
	logger *slog.Logger

	nonce     [32]byte      // of the challenge
	sequence  uint64        // of the newest Hello
	follows   bool          // it has asked for the log; serveConnection's goroutine has it
	sent      uint64        // records of the log that the client has; 0: it does not follow it, or catches up; the writer has it
	caught    atomic.Bool   // it has had the whole log once
	yields    bool          // the writer sends a batch that must not take long while other clients wait
	unpinged  int           // bytes since the newest Ping; the writer has it
	pinged    time.Time     // when that was; the writer has it
	watching  bool          // it is one of its key's observers
	leave     func()        // gives back its place among the strangers, if it has one; the registry guards it
	published chan struct{} // has a value when the host published something
	answers   chan answer
	probe     chan struct{} // asks the writer for a Ping
	heard     chan struct{} // has a value when a frame was read
	ended     chan struct{} // closed when the key is free again
	probing   sync.Mutex    // one prober at a time
	hangUp    context.CancelCauseFunc
	working   sync.WaitGroup // of goroutines that converse waits for
}

// answer asks the writer to send whole frames, or a part of the journal or of the model. The writer reads such a part
// when it sends it.
type answer struct {
	frames [][]byte
	log    *logPart
	live   uint64          // records of the log that the client has with it; then it gets new records; 0: no matter
	yields bool            // see connection
	sent   chan<- struct{} // closed when the client has taken the frames; may be nil
}

// refusedError ends a connection with a Refusal.
type refusedError frame.Refusal

func (e *refusedError) Error() string { return e.Reason }

func refuse(code frame.RefusalCode, format string, values ...any) error {
	return &refusedError{Code: code, Reason: fmt.Sprintf(format, values...)}
}

// protocol is how a host of runs talks of what clients do.
var protocol = accept.Protocol{
	Malformed:       func(reason string) error { return refuse(frame.RefusedMalformed, "%s", reason) },
	TooSlow:         func(reason string) error { return refuse(frame.RefusedTimeout, "%s", reason) },
	Farewell:        farewell,
	FarewellTimeout: farewellTimeout,
}

func farewell(reason error) ([]byte, bool) {
	if errors.Is(reason, errCreated) || errors.Is(reason, errListed) {
		return nil, true
	}
	refused, ok := errors.AsType[*refusedError](reason)
	switch {
	case ok:
	case errors.Is(reason, context.Canceled):
		refused = &refusedError{Code: frame.RefusedShutdown, Reason: "the server stops"}
	default:
		return nil, false
	}
	return frame.Append(nil, frame.TypeRefusal, frame.Refusal(*refused).AppendTo(nil)), true
}

// serveConnection owns the socket until the client or ctx ends; hangUp ends ctx. identified
// is called once the client has taken its place, and not if it is refused.
func (s *server) serveConnection(ctx context.Context, hangUp context.CancelCauseFunc, socket net.Conn, identified func()) {
	remote := socket.RemoteAddr().String()
	accept.LimitUnsent(socket, maxUnsent)
	c := &connection{
		server: s, conn: accept.NewConn(ctx, counted{Conn: socket, metrics: s.metrics}, s.tls, &protocol),
		remote: remote, logger: s.logger.With("remote", remote), hangUp: hangUp,
		published: make(chan struct{}, 1), answers: make(chan answer, 1),
		probe: make(chan struct{}, 1), heard: make(chan struct{}, 1), ended: make(chan struct{}),
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

// serve talks to a client that has its place, until something ends that.
func (c *connection) serve(ctx context.Context) error {
	c.logger = c.logger.With("run", c.host.runID)
	level := slog.LevelInfo
	if c.role == frame.RoleObserver { // every look at the run is one
		level = slog.LevelDebug
	}
	c.logger.Log(ctx, level, "client connected", "role", c.role)
	c.event(EventConnected, "")
	err := c.converse(ctx)
	c.logger.Log(ctx, level, "client disconnected", "role", c.role, "reason", err)
	c.event(EventDisconnected, err.Error())
	return err
}

// report notes a connection that was refused. Strangers must not fill the log.
func (c *connection) report(err error) {
	if errors.Is(err, errCreated) || errors.Is(err, errListed) {
		return
	}
	if c.server.noise.Allow() {
		c.logger.Warn("refused a connection", "reason", err)
	}
	c.event(EventRefused, err.Error())
}

// event passes on what happened to the connection.
func (c *connection) event(kind EventKind, reason string) {
	e := Event{Kind: kind, Client: c.id, Remote: c.remote, Reason: reason}
	if c.host == nil {
		c.server.emit(e)
		return
	}
	e.Phase = c.host.newest.Load().phase
	c.host.emit(e)
}

// release gives back the places that the connection has.
func (c *connection) release() {
	if c.host != nil {
		c.host.registry.release(c)
	}
	if c.watching {
		c.server.observers.release(c.id)
	}
	close(c.ended)
}

// giveWay ends a stranger's connection in favour of another one. It is over at once, so that
// no more connections are open than there are places for.
func (c *connection) giveWay() {
	c.hangUp(errGaveWay)
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

// converse reads and writes until something ends the connection, and says what did.
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
				err = refuse(frame.RefusedMalformed, "a pong of %d bytes, want none", len(payload))
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
			err = refuse(frame.RefusedMalformed, "a client does not send frames of type %d", kind)
		}
		if err != nil {
			return err
		}
	}
}

// readHello takes new addresses.
func (c *connection) readHello(payload []byte) error {
	hello, err := frame.OpenHello(payload, c.nonce, c.server.key.ID())
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	if hello.ID != c.id || hello.RunID != c.host.runID || hello.Run != c.host.run || hello.Role != c.role || hello.Sequence <= c.sequence {
		return refuse(frame.RefusedMalformed, "a later hello must be of the same client, run and role, and of a higher sequence")
	}
	c.sequence = hello.Sequence
	c.host.registry.setAddrs(c, hello.Addrs)
	return nil
}

// readSubmit hands an action to the host and waits for its answer, so a client has at most
// one action in the host at a time.
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
		return refuse(frame.RefusedMalformed, "an action that is signed by %s came on the connection of %s", action.From, c.id)
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
		ack.Code, _ = errors.AsType[coordinator.Code](refused) // after any other error the core does not answer
		if text := refused.Error(); text != ack.Code.Error() {
			ack.Reason = text
		}
	}
	return c.answer(ctx, answer{frames: [][]byte{frame.Append(nil, frame.TypeAck, ack.AppendTo(nil))}})
}

// await waits until the key may act again, and the run's journal may grow by an action that can be
// repeated without end.
func (c *connection) await(ctx context.Context, action wire.SignedAction) error {
	if err := c.server.actions.Of(c.id).Wait(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	switch action.Action.(type) {
	case coordinator.Join, coordinator.SetDelegates: // and Withdraw, which needs a Join before it
		return c.host.growth.Take(ctx, c.conn.RemoteAddr(), 1)
	}
	return nil
}

// answer gives the writer something to send.
func (c *connection) answer(ctx context.Context, a answer) error {
	select {
	case c.answers <- a:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeLoop sends what is new, answers first. It returns nil when ctx ended between two
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

// follow brings the client from a version of a feed to the newest one.
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

// ping asks the client for a sign of life.
func (c *connection) ping(ctx context.Context) error {
	c.unpinged, c.pinged = 0, time.Now()
	return c.writeSteadily(ctx, frame.Append(nil, frame.TypePing, nil))
}

// writeBytes sends whole frames, which may be split over several slices. A client that does not read is cut off; see
// writeTimeout. If ctx has ended, writeBytes sends nothing and returns nil.
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

// tookBytes notes that the client takes bytes. While it does it is not silent.
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

// writeTimeout returns the time in which the client has to take the next 16 KiB.
func (c *connection) writeTimeout() time.Duration {
	if c.yields && c.server.catching.held.Crowded() {
		return crowdedTimeout
	}
	return frame.WriteTimeout
}
