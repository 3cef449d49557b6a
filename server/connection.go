package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/backend/tcp/frame"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

// Limits of one connection.
const (
	framesPerSecond = 50              // sustained; more is not read, so the sender has to wait
	framesBurst     = 200             // at once
	probeTimeout    = 2 * time.Second // for an old connection to prove that it is alive
	farewellTimeout = time.Second     // for a refusal to reach the other side
	farewellBytes   = 128 << 10       // of unread input, so that it is not lost with a reset
)

// connection is one client's socket. serveConnection's goroutine reads, a second one writes.
type connection struct {
	host   *host
	socket net.Conn
	id     identity.ID // known after the handshake
	remote string
	logger *slog.Logger

	nonce     [32]byte      // of the challenge
	sequence  uint64        // of the newest Hello
	published chan struct{} // has a value when the host published something
	answers   chan frame.Ack
	probe     chan struct{} // asks the writer for a Ping
	heard     chan struct{} // has a value when a frame was read
	ended     chan struct{} // closed when the key is free again
	probing   sync.Mutex    // one prober at a time
	hangUp    context.CancelCauseFunc
}

// refusedError ends a connection with a Refusal.
type refusedError frame.Refusal

func (e *refusedError) Error() string { return e.Reason }

func refuse(code frame.RefusalCode, format string, values ...any) error {
	return &refusedError{Code: code, Reason: fmt.Sprintf(format, values...)}
}

// serveConnection owns the socket until the client or ctx ends. identified is called once
// the client is known, or is not going to be.
func (h *host) serveConnection(ctx context.Context, socket net.Conn, identified func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	remote := socket.RemoteAddr().String()
	c := &connection{
		host: h, socket: socket, remote: remote, logger: h.logger.With("remote", remote), hangUp: cancel,
		published: make(chan struct{}, 1), answers: make(chan frame.Ack, 16),
		probe: make(chan struct{}, 1), heard: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	// Ending ctx makes a read return at once, and a write finish its frame or fail soon, so
	// that a farewell can follow it.
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = socket.SetReadDeadline(time.Unix(1, 0))
		_ = socket.SetWriteDeadline(time.Now().Add(farewellTimeout))
		close(interrupted)
	})

	reader := frame.NewReader(bufio.NewReader(socket))
	err := c.handshake(ctx, reader)
	identified()
	clean := true
	if err == nil {
		c.logger.Info("client connected")
		h.emit(Event{Kind: EventConnected, Phase: *h.phase.Load(), Client: c.id, Remote: remote})
		clean, err = c.converse(ctx, reader)
		c.logger.Info("client disconnected", "reason", err)
		h.emit(Event{Kind: EventDisconnected, Phase: *h.phase.Load(), Client: c.id, Remote: remote, Reason: err.Error()})
	} else {
		c.logger.Warn("refused a connection", "reason", err)
		h.emit(Event{Kind: EventRefused, Phase: *h.phase.Load(), Client: c.id, Remote: remote, Reason: err.Error()})
	}
	h.registry.release(c)
	close(c.ended)
	if !stop() {
		<-interrupted // or it would cut the farewell short
	}
	c.close(err, clean)
}

// handshake finds out who the client is and makes this the live connection of its key.
func (c *connection) handshake(ctx context.Context, reader *frame.Reader) error {
	if err := c.setDeadline(ctx, frame.HandshakeTimeout); err != nil {
		return err
	}
	if _, err := io.ReadFull(c.host.options.Random, c.nonce[:]); err != nil {
		return fmt.Errorf("draw a challenge: %w", err)
	}
	if err := c.write(ctx, frame.TypeChallenge, frame.Challenge{Version: frame.Version, Nonce: c.nonce}.AppendTo(nil)); err != nil {
		return err
	}
	kind, payload, err := reader.Next(frame.MaxHello)
	if err != nil {
		return c.readError(ctx, err)
	}
	if kind != frame.TypeHello {
		return refuse(frame.RefusedMalformed, "the first frame has type %d, want a hello (%d)", kind, frame.TypeHello)
	}
	hello, err := frame.OpenHello(payload, c.nonce)
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	c.id = hello.ID
	c.logger = c.logger.With("client", c.id)
	if hello.RunID != c.host.runID {
		return refuse(frame.RefusedWrongRun, "run %q is not hosted here, this server hosts run %q", hello.RunID, c.host.runID)
	}
	c.sequence = hello.Sequence
	if err := c.claim(ctx, hello.Addrs); err != nil {
		return err
	}
	return c.write(ctx, frame.TypeWelcome, frame.Welcome{Host: c.host.key.ID()}.AppendTo(nil))
}

// claim takes the key. Another connection that has it keeps it if it answers; if it does
// not, its client is gone without a word and the newcomer is the same one come back.
func (c *connection) claim(ctx context.Context, addrs []string) error {
	for range 3 {
		other := c.host.registry.claim(c, addrs)
		if other == nil {
			return nil
		}
		if other.isAlive(ctx) {
			break
		}
		other.hangUp(refuse(frame.RefusedTimeout, "the client did not answer and has connected anew"))
		select {
		case <-other.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return refuse(frame.RefusedDuplicateKey, "a client with the key %s is connected already; every client needs a key of its own", c.id)
}

// isAlive asks the client for a sign of life.
func (c *connection) isAlive(ctx context.Context) bool {
	c.probing.Lock()
	defer c.probing.Unlock()
	select {
	case <-c.heard:
	default:
	}
	signal(c.probe)
	timer := time.NewTimer(probeTimeout)
	defer timer.Stop()
	select {
	case <-c.heard:
		return true
	case <-c.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// converse reads and writes until something ends the connection, and says what did. clean
// is true when no frame was cut short, so that a refusal can follow.
func (c *connection) converse(ctx context.Context, reader *frame.Reader) (clean bool, err error) {
	var writing sync.WaitGroup
	var writeErr error
	writing.Go(func() {
		writeErr = c.writeLoop(ctx)
		c.hangUp(writeErr)
	})
	err = c.readLoop(ctx, reader)
	c.hangUp(err)
	writing.Wait()
	return writeErr == nil, context.Cause(ctx)
}

// readLoop handles one frame after the other.
func (c *connection) readLoop(ctx context.Context, reader *frame.Reader) error {
	limiter := rate.NewLimiter(framesPerSecond, framesBurst)
	for {
		if err := limiter.Wait(ctx); err != nil {
			return context.Cause(ctx)
		}
		if err := c.setDeadline(ctx, frame.IdleTimeout); err != nil {
			return err
		}
		kind, payload, err := reader.Next(frame.MaxToHost)
		if err != nil {
			return c.readError(ctx, err)
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
	hello, err := frame.OpenHello(payload, c.nonce)
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	if hello.ID != c.id || hello.RunID != c.host.runID || hello.Sequence <= c.sequence {
		return refuse(frame.RefusedMalformed, "a later hello must be of the same client and run, and of a higher sequence")
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
	action, err := wire.OpenAction(submit.Action, c.host.runID)
	if err != nil {
		return refuse(frame.RefusedMalformed, "action: %v", err)
	}
	if action.From != c.id {
		return refuse(frame.RefusedMalformed, "an action that is signed by %s came on the connection of %s", action.From, c.id)
	}
	reply := make(chan coordinator.Code, 1)
	ack := frame.Ack{Request: submit.Request}
	select {
	case c.host.requests <- request{action: action, reply: reply}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case ack.Code = <-reply:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case c.answers <- ack:
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
		case ack := <-c.answers:
			err = c.write(ctx, frame.TypeAck, ack.AppendTo(nil))
		case <-c.probe:
			err = c.write(ctx, frame.TypePing, nil)
		case <-ticker.C:
			err = c.write(ctx, frame.TypePing, nil)
		case <-c.published:
			newest := c.host.newest.Load()
			if newest.peersVersion != peersVersion {
				peersVersion = newest.peersVersion
				err = c.writeBytes(ctx, newest.peers)
			}
			if err == nil && newest.stateVersion != stateVersion {
				stateVersion = newest.stateVersion
				err = c.writeBytes(ctx, newest.state)
			}
		}
		if err != nil {
			return err
		}
	}
}

func (c *connection) write(ctx context.Context, kind frame.Type, payload []byte) error {
	return c.writeBytes(ctx, frame.Append(nil, kind, payload))
}

// writeBytes sends whole frames. A client that does not read them for WriteTimeout is cut off.
// It sends nothing, and returns nil, when ctx has ended.
func (c *connection) writeBytes(ctx context.Context, frames []byte) error {
	if err := c.socket.SetWriteDeadline(time.Now().Add(frame.WriteTimeout)); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	if _, err := c.socket.Write(frames); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("the client does not read what it is sent: %w", err)
		}
		return err
	}
	return nil
}

// setDeadline bounds the next read, and the whole handshake. It does not undo the deadline
// that the end of ctx has set.
func (c *connection) setDeadline(ctx context.Context, d time.Duration) error {
	if err := c.socket.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// readError turns the error of a read into the reason for the end of the connection.
func (c *connection) readError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, frame.ErrMalformed):
		return refuse(frame.RefusedMalformed, "%v", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(frame.RefusedTimeout, "nothing complete was received in time")
	default:
		return fmt.Errorf("connection ended: %w", err)
	}
}

// close tells the client why, if it is still there to hear it, and closes the socket.
func (c *connection) close(reason error, clean bool) {
	defer func() { _ = c.socket.Close() }()
	var refused *refusedError
	switch {
	case !clean:
		return
	case errors.As(reason, &refused):
	case errors.Is(reason, context.Canceled):
		refused = &refusedError{Code: frame.RefusedShutdown, Reason: "the server stops"}
	default:
		return
	}
	// A socket that is closed with unread input resets the connection, and the refusal
	// with it: so read some of what the client still sends, but not for long.
	_ = c.socket.SetDeadline(time.Now().Add(farewellTimeout))
	payload := frame.Refusal(*refused).AppendTo(nil)
	if _, err := c.socket.Write(frame.Append(nil, frame.TypeRefusal, payload)); err != nil {
		return
	}
	if half, ok := c.socket.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.socket, farewellBytes)
	}
}
