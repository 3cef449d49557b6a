package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data/remote/message"
	"github.com/psyche-go/psyche/net/accept"
	"github.com/psyche-go/psyche/net/frame"
)

// Limits of one connection.
const (
	closeTimeout = 2 * time.Second // for an answer in progress, and a refusal, when the server stops
	pieceTokens  = 64 << 10        // of a batch in memory at once, unless a sequence is longer
	pieceBytes   = 16 << 10        // bytes per time limit
	// maxUnsent is the maximum number of bytes that the system buffers before sending. Without it,
	// a write on a slow link waits until a third of a buffer of megabytes is sent.
	maxUnsent = 64 << 10
)

// connection is one client's connection.
type connection struct {
	server  *Server
	conn    *accept.Conn
	writer  *bufio.Writer // of conn
	id      identity.ID   // known after the hello
	logger  *slog.Logger
	hangUp  context.CancelCauseFunc
	scratch []byte
}

func refuse(code message.Code, format string, values ...any) error {
	return &message.Error{Code: code, Reason: fmt.Sprintf(format, values...)}
}

// protocol contains the data server's errors and close frame.
var protocol = accept.Protocol{
	Malformed:    func(reason string) error { return refuse(message.Malformed, "%s", reason) },
	TooSlow:      func(reason string) error { return refuse(message.TooSlow, "%s", reason) },
	CloseFrame:   closeFrame,
	CloseTimeout: closeTimeout,
}

func closeFrame(reason error) ([]byte, bool) {
	refused, ok := errors.AsType[*message.Error](reason)
	if errors.Is(reason, context.Canceled) {
		refused, ok = &message.Error{Code: message.Stopping, Reason: "the server is shutting down"}, true
	}
	if !ok {
		return nil, false
	}
	return frame.Append(nil, message.TypeRefusal, message.Refusal(*refused).AppendTo(nil)), true
}

// serve owns the socket until the client disconnects or ctx ends; hangUp ends ctx. It calls
// identified once the client has proved that it belongs to the run.
func (s *Server) serve(ctx context.Context, hangUp context.CancelCauseFunc, socket net.Conn, identified func()) {
	accept.LimitUnsent(socket, maxUnsent)
	c := &connection{
		server: s, conn: accept.NewConn(ctx, socket, s.tls, &protocol), hangUp: hangUp,
		logger: s.logger.With("remote", socket.RemoteAddr().String()),
	}
	c.writer = bufio.NewWriter(c.conn)
	err := c.handshake(ctx)
	if err == nil {
		identified()
		s.metrics.connections.WithLabelValues("accepted").Inc()
		c.logger.Info("client connected")
		err = c.converse(ctx)
		c.logger.Info("client disconnected", "reason", err)
	} else {
		s.metrics.connections.WithLabelValues(resultOf(err)).Inc()
		if s.noise.Allow() {
			c.logger.Warn("refused a connection", "client", c.id, "reason", err)
		}
	}
	s.leave(c)
	c.conn.Close(err)
}

// resultOf returns the name of an error in metrics.
func resultOf(err error) string {
	if refused, ok := errors.AsType[*message.Error](err); ok {
		return refused.Code.String()
	}
	return "broken"
}

// handshake proves the server's key, identifies the client, checks that it belongs to the run, and
// makes this the connection of its key.
func (c *connection) handshake(ctx context.Context) error {
	if err := c.conn.Handshake(ctx, c.server.options.HandshakeTimeout); err != nil {
		return err
	}
	challenge := message.Challenge{Version: message.Version}
	if _, err := io.ReadFull(c.server.options.Random, challenge.Nonce[:]); err != nil {
		return fmt.Errorf("draw a challenge: %w", err)
	}
	if err := c.send(message.TypeChallenge, challenge.AppendTo(nil)); err != nil {
		return err
	}
	kind, payload, err := c.conn.Next(ctx, message.MaxToServer)
	if err != nil {
		return err
	}
	if kind != message.TypeHello {
		return refuse(message.Malformed, "frame of type %d, want a hello; is this client meant for a data server?", kind)
	}
	hello, err := message.OpenHello(payload, challenge.Nonce, c.server.options.Key.ID())
	if err != nil {
		return refuse(message.Malformed, "%v", err)
	}
	c.id = hello.ID
	c.logger = c.logger.With("client", c.id)
	if hello.RunID != c.server.options.RunID {
		return refuse(message.WrongRun, "run %q is not served here", hello.RunID)
	}
	if _, err := c.await(ctx, func() decision { return c.server.run.admit(coordinator.ClientID(c.id)) }); err != nil {
		return err
	}
	c.server.enter(c) // before the welcome, so that a connection that the client makes after it counts as newer
	welcome := message.Welcome{SeqLen: uint32(c.server.options.SeqLen), Sequences: c.server.options.Source.Len(), Run: c.server.run.name()}
	return c.send(message.TypeWelcome, welcome.AppendTo(nil))
}

// await calls decide. If the decision is a refusal that a newer state may change, await calls
// decide for each newer state, for up to Options.StateWait.
func (c *connection) await(ctx context.Context, decide func() decision) (decision, error) {
	timer := time.NewTimer(c.server.options.StateWait)
	defer timer.Stop()
	for {
		d := decide()
		if d.refused == nil {
			return d, nil
		}
		err := (*message.Error)(d.refused)
		if d.wait == nil {
			return d, err
		}
		select {
		case <-d.wait:
		case <-timer.C:
			return d, err
		case <-ctx.Done():
			return d, context.Cause(ctx)
		}
	}
}

// converse answers one request after the other until the connection ends, and returns the reason.
func (c *connection) converse(ctx context.Context) error {
	c.writer = bufio.NewWriterSize(&steadyWriter{ctx: ctx, conn: c.conn, limit: c.server.options.WriteTimeout}, pieceBytes)
	limiter := c.server.limits.Of(c.id)
	for {
		if limiter.Wait(ctx) != nil {
			return context.Cause(ctx)
		}
		if err := c.conn.BoundReads(ctx, c.server.options.IdleTimeout); err != nil {
			return err
		}
		kind, payload, err := c.conn.Next(ctx, message.MaxToServer)
		if err != nil {
			return err
		}
		if kind != message.TypeRequest {
			return refuse(message.Malformed, "frame of type %d, want a request", kind)
		}
		request, err := message.DecodeRequest(payload)
		if err != nil {
			return refuse(message.Malformed, "%v", err)
		}
		if err := c.answer(ctx, request); err != nil {
			return err
		}
	}
}

// steadyWriter gives every piece of pieceBytes a separate time limit. A client on a slow link may
// therefore take long for a long answer, as long as it keeps reading.
type steadyWriter struct {
	ctx   context.Context
	conn  *accept.Conn
	limit time.Duration
	last  bool // ctx has ended, and the time for the rest of the frame is running
}

// Write implements io.Writer.
func (w *steadyWriter) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		if err := w.bound(); err != nil {
			return written, err
		}
		n, err := w.conn.Write(p[:min(len(p), pieceBytes)])
		written += n
		if err != nil {
			return written, err
		}
		p = p[n:]
	}
	return written, nil
}

// bound sets the time limit of the next piece.
func (w *steadyWriter) bound() error {
	if w.last {
		return nil
	}
	err := w.conn.BoundWrites(w.ctx, w.limit)
	if err == nil || w.ctx.Err() == nil {
		return err
	}
	w.last = true
	return w.conn.BoundWrites(context.WithoutCancel(w.ctx), closeTimeout)
}

// send writes one frame and flushes.
func (c *connection) send(kind frame.Type, payload []byte) error {
	if err := c.put(kind, payload); err != nil {
		return err
	}
	return c.writer.Flush()
}

func (c *connection) put(kind frame.Type, payload []byte) error {
	c.scratch = frame.Append(c.scratch[:0], kind, payload)
	_, err := c.writer.Write(c.scratch)
	return err
}
