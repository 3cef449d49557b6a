package accept

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/psyche-go/psyche/net/frame"
)

// Limits for draining unread input after the close frame, because a connection reset would
// destroy the close frame.
const (
	drainBytes   = 128 << 10
	drainTimeout = time.Second
)

// Protocol contains the parts of a connection that differ between servers.
type Protocol struct {
	// Malformed and TooSlow return the error for a client that sent an invalid frame, or that did
	// not send or read in time.
	Malformed, TooSlow func(reason string) error
	// CloseFrame returns the last frame, which contains the reason for the end of the connection. An
	// empty frame means that closing the connection is sufficient. If ok is false, the server closes
	// the connection at once.
	CloseFrame func(reason error) (frame []byte, ok bool)
	// CloseTimeout is the time limit for a write that is in progress when the connection ends,
	// and for the close frame.
	CloseTimeout time.Duration
}

// Conn is the server's end of a connection. One goroutine may read while another writes.
type Conn struct {
	protocol *Protocol
	tls      *tls.Conn
	reader   *frame.Reader
	whole    bool // TLS is established and no frame was cut short, so a close frame can follow

	stop        func() bool
	interrupted chan struct{} // closed when the end of the context has set the deadlines
}

// NewConn wraps a socket. Close closes the socket. When ctx ends, reads return at once, and a write
// in progress finishes its frame or fails soon, so that a close frame can follow.
func NewConn(ctx context.Context, socket net.Conn, config *tls.Config, p *Protocol) *Conn {
	c := &Conn{protocol: p, tls: tls.Server(socket, config), interrupted: make(chan struct{})}
	c.reader = frame.NewReader(bufio.NewReader(c.tls))
	c.stop = context.AfterFunc(ctx, func() {
		_ = socket.SetReadDeadline(time.Unix(1, 0))
		_ = socket.SetWriteDeadline(time.Now().Add(p.CloseTimeout))
		close(c.interrupted)
	})
	return c
}

// Handshake performs the TLS handshake, which proves the server's key. limit also applies to later
// reads and writes, until BoundReads or BoundWrites sets another limit.
func (c *Conn) Handshake(ctx context.Context, limit time.Duration) error {
	if err := c.bound(ctx, c.tls.SetDeadline, limit); err != nil {
		return err
	}
	if err := c.tls.Handshake(); err != nil {
		return c.readError(ctx, fmt.Errorf("TLS: %w", err))
	}
	c.whole = true
	return nil
}

// BoundReads sets a deadline for subsequent reads.
func (c *Conn) BoundReads(ctx context.Context, limit time.Duration) error {
	return c.bound(ctx, c.tls.SetReadDeadline, limit)
}

// ExtendReads moves the deadline of a read in progress to limit from now. Unlike BoundReads, it may
// be called by the writing goroutine.
func (c *Conn) ExtendReads(ctx context.Context, limit time.Duration) {
	if c.bound(ctx, c.tls.SetReadDeadline, limit) != nil {
		_ = c.tls.SetReadDeadline(time.Unix(1, 0)) // ctx has ended: restore the deadline that its end has set
	}
}

// BoundWrites sets a deadline for subsequent writes.
func (c *Conn) BoundWrites(ctx context.Context, limit time.Duration) error {
	return c.bound(ctx, c.tls.SetWriteDeadline, limit)
}

// bound sets a deadline. If ctx has ended, the new deadline may have replaced the deadline that the
// end of ctx set. bound then returns the cause of ctx, and the caller must not read or write any
// more.
func (c *Conn) bound(ctx context.Context, set func(time.Time) error, limit time.Duration) error {
	if err := set(time.Now().Add(limit)); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// Next reads a frame of at most limit bytes. The payload is valid until the next call. If Next
// fails, the connection must end, and the error is the reason.
func (c *Conn) Next(ctx context.Context, limit int) (frame.Type, []byte, error) {
	kind, payload, err := c.reader.Next(limit)
	if err != nil {
		return 0, nil, c.readError(ctx, err)
	}
	return kind, payload, nil
}

func (c *Conn) readError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, frame.ErrMalformed):
		return c.protocol.Malformed(err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.protocol.TooSlow("no complete message arrived in time")
	default:
		return fmt.Errorf("connection ended: %w", err)
	}
}

// Write sends whole frames. After a frame was cut short, nothing more can be sent.
func (c *Conn) Write(frames []byte) (int, error) {
	n, err := c.tls.Write(frames)
	if err != nil {
		c.whole = false
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = c.protocol.TooSlow("the client does not read the messages sent to it")
		}
	}
	return n, err
}

// pieceSize is the number of bytes for one time limit of WriteSteadily and WriteFrom.
const pieceSize = 16 << 10

// WriteSteadily sends whole frames, which may be split over several slices. It calls limit for the
// time limit of each piece of 16 KiB. A slow client may therefore take long for a long frame, as
// long as it keeps reading.
func (c *Conn) WriteSteadily(ctx context.Context, limit func() time.Duration, frames ...[]byte) error {
	w := steadyWriter{conn: c, ctx: ctx, limit: limit}
	for _, f := range frames {
		for len(f) > 0 {
			n := min(len(f), pieceSize)
			if err := w.write(f[:n]); err != nil {
				return err
			}
			f = f[n:]
		}
	}
	return nil
}

// WriteFrom is like WriteSteadily for the first size bytes of source. It keeps at most one piece in
// memory.
func (c *Conn) WriteFrom(ctx context.Context, limit func() time.Duration, source io.Reader, size int64) error {
	w := steadyWriter{conn: c, ctx: ctx, limit: limit}
	piece := make([]byte, min(size, pieceSize))
	for size > 0 {
		n, err := io.ReadFull(source, piece[:min(size, pieceSize)])
		if err != nil {
			c.whole = false
			return err
		}
		if err := w.write(piece[:n]); err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

// steadyWriter writes the pieces of frames.
type steadyWriter struct {
	conn  *Conn
	ctx   context.Context
	limit func() time.Duration
	begun bool // part of a frame has been written
	last  bool // ctx has ended, and the time for the rest of the frame is running
}

func (w *steadyWriter) write(piece []byte) error {
	c := w.conn
	if !w.last {
		switch err := c.BoundWrites(w.ctx, w.limit()); {
		case err == nil:
		case !w.begun || w.ctx.Err() == nil:
			return err
		default: // ctx has ended: the rest of the frame may take CloseTimeout
			w.last = true
			_ = c.tls.SetWriteDeadline(time.Now().Add(c.protocol.CloseTimeout))
		}
	}
	w.begun = true
	_, err := c.Write(piece)
	return err
}

// Whole reports whether another frame may follow, because no frame was cut short. It is for the
// writing goroutine.
func (c *Conn) Whole() bool { return c.whole }

// RemoteAddr returns the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.tls.RemoteAddr() }

// Cut closes the socket at once, even while it is in use. The caller must still call Close
// afterwards.
func (c *Conn) Cut() { _ = c.tls.NetConn().Close() }

// Close sends the close frame to the client, if it is still connected, and closes the socket. No
// goroutine may read or write any more.
func (c *Conn) Close(reason error) {
	if !c.stop() {
		<-c.interrupted // otherwise the end of ctx would cut the close frame short
	}
	defer c.Cut()
	closeFrame, ok := c.protocol.CloseFrame(reason)
	if !c.whole || !ok {
		return
	}
	_ = c.tls.SetDeadline(time.Now().Add(c.protocol.CloseTimeout))
	if len(closeFrame) > 0 {
		if _, err := c.tls.Write(closeFrame); err != nil {
			return
		}
	}
	// Closing a socket with unread input resets the connection and destroys the close frame.
	// Therefore read a limited amount of the client's input first.
	if c.tls.CloseWrite() == nil && c.tls.SetReadDeadline(time.Now().Add(drainTimeout)) == nil {
		_, _ = io.CopyN(io.Discard, c.tls, drainBytes)
	}
}
