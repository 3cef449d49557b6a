package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/psyche-go/psyche/backend/tcp/frame"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data/remote/message"
	"github.com/psyche-go/psyche/identity"
)

// Limits of one connection.
const (
	farewellTimeout = 2 * time.Second // for an answer that is on its way, and a refusal, when the server stops
	drainTimeout    = 300 * time.Millisecond
	farewellBytes   = 64 << 10 // of unread input that is drained, so that the refusal is not lost with a reset
	pieceTokens     = 64 << 10 // of a batch that are in memory at once, unless a sequence is longer
)

// errEvicted ends a connection that gives way to another one in the lobby.
var errEvicted = errors.New("it gave way to a newer connection before it said who it is")

// connection is one client's socket.
type connection struct {
	server  *Server
	tls     *tls.Conn
	reader  *frame.Reader
	writer  *bufio.Writer
	id      identity.ID // known after the hello
	logger  *slog.Logger
	hangUp  context.CancelCauseFunc
	scratch []byte
	clean   bool // frames are whole so far, so that a refusal can follow
}

func refuse(code message.Code, format string, values ...any) error {
	return &message.Error{Code: code, Reason: fmt.Sprintf(format, values...)}
}

// serve owns the socket until the client or ctx ends; hangUp ends ctx. identified is called
// once the client has proved that it is part of the run.
func (s *Server) serve(ctx context.Context, hangUp context.CancelCauseFunc, socket net.Conn, identified func()) {
	secured := tls.Server(socket, s.tls)
	c := &connection{
		server: s, tls: secured, reader: frame.NewReader(bufio.NewReaderSize(secured, 512)),
		writer: bufio.NewWriterSize(secured, 16<<10), hangUp: hangUp,
		logger: s.logger.With("remote", socket.RemoteAddr().String()),
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = socket.SetReadDeadline(time.Unix(1, 0))
		_ = socket.SetWriteDeadline(time.Now().Add(farewellTimeout))
		close(interrupted)
	})
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
	if !stop() {
		<-interrupted // or it would cut the farewell short
	}
	c.close(err)
}

// resultOf names an error for the metrics.
func resultOf(err error) string {
	if refused, ok := errors.AsType[*message.Error](err); ok {
		return refused.Code.String()
	}
	return "broken"
}

// handshake proves the server's key, finds out who the client is and whether it is part of
// the run, and makes this the connection of its key.
func (c *connection) handshake(ctx context.Context) error {
	deadline := time.Now().Add(c.server.options.HandshakeTimeout)
	if err := c.tls.SetDeadline(deadline); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := c.tls.HandshakeContext(ctx); err != nil {
		return c.readError(ctx, fmt.Errorf("TLS: %w", err))
	}
	c.clean = true
	challenge := message.Challenge{Version: message.Version}
	if _, err := io.ReadFull(c.server.options.Random, challenge.Nonce[:]); err != nil {
		return fmt.Errorf("draw a challenge: %w", err)
	}
	if err := c.send(message.TypeChallenge, challenge.AppendTo(nil)); err != nil {
		return err
	}
	kind, payload, err := c.reader.Next(message.MaxToServer)
	if err != nil {
		return c.readError(ctx, err)
	}
	if kind != message.TypeHello {
		return refuse(message.Malformed, "a frame of type %d, want a hello; is this client meant for a data server?", kind)
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
	if err := c.await(ctx, func() decision { return c.server.run.admit(coordinator.ClientID(c.id)) }); err != nil {
		return err
	}
	c.server.enter(c) // before the client knows: so its next connection is the newer one
	welcome := message.Welcome{SeqLen: uint32(c.server.options.SeqLen), Sequences: c.server.options.Source.Len()}
	return c.send(message.TypeWelcome, welcome.AppendTo(nil))
}

// await asks for a decision, and again with every newer state while one may change it.
func (c *connection) await(ctx context.Context, decide func() decision) error {
	timer := time.NewTimer(c.server.options.Patience)
	defer timer.Stop()
	for {
		d := decide()
		if d.refused == nil {
			return nil
		}
		err := (*message.Error)(d.refused)
		if d.wait == nil {
			return err
		}
		select {
		case <-d.wait:
		case <-timer.C:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// converse answers one request after the other until something ends that, and says what.
func (c *connection) converse(ctx context.Context) error {
	limiter := c.server.limits.Of(c.id)
	for {
		if limiter.Wait(ctx) != nil {
			return context.Cause(ctx)
		}
		if err := c.tls.SetReadDeadline(time.Now().Add(c.server.options.IdleTimeout)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		kind, payload, err := c.reader.Next(message.MaxToServer)
		if err != nil {
			return c.readError(ctx, err)
		}
		if kind != message.TypeRequest {
			return refuse(message.Malformed, "a frame of type %d, want a request", kind)
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

// send writes one frame and flushes.
func (c *connection) send(kind frame.Type, payload []byte) error {
	if err := c.put(kind, payload); err != nil {
		return err
	}
	return c.flush()
}

func (c *connection) put(kind frame.Type, payload []byte) error {
	c.scratch = frame.Append(c.scratch[:0], kind, payload)
	if _, err := c.writer.Write(c.scratch); err != nil {
		return c.writeError(err)
	}
	return nil
}

func (c *connection) flush() error {
	if err := c.writer.Flush(); err != nil {
		return c.writeError(err)
	}
	return nil
}

// writeError says why a client was cut off; nothing can follow a frame that is not whole.
func (c *connection) writeError(err error) error {
	c.clean = false
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse(message.TooSlow, "the client does not read what it is sent")
	}
	return err
}

// readError turns the error of a read into the reason for the end of the connection.
func (c *connection) readError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, frame.ErrMalformed):
		return refuse(message.Malformed, "%v", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(message.TooSlow, "nothing complete was received in time")
	default:
		return fmt.Errorf("connection ended: %w", err)
	}
}

// close tells the client why, if it is still there to hear it, and closes the socket.
func (c *connection) close(reason error) {
	defer func() { _ = c.tls.NetConn().Close() }()
	if !c.clean {
		return
	}
	refused, ok := errors.AsType[*message.Error](reason)
	if errors.Is(reason, context.Canceled) {
		refused, ok = &message.Error{Code: message.Stopping, Reason: "the server stops"}, true
	}
	_ = c.tls.SetDeadline(time.Now().Add(farewellTimeout))
	if !ok || c.send(message.TypeRefusal, message.Refusal(*refused).AppendTo(nil)) != nil {
		return
	}
	// A socket that is closed with unread input resets the connection, and the refusal
	// with it: so read some of what the client still sends, but not for long.
	if c.tls.CloseWrite() == nil && c.tls.SetReadDeadline(time.Now().Add(drainTimeout)) == nil {
		_, _ = io.CopyN(io.Discard, c.tls, farewellBytes)
	}
}
