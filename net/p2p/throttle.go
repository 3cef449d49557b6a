package p2p

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// uploadBurst is the maximum burst under a limit of the upload rate, in bytes.
	uploadBurst = 256 << 10
	// uploadPiece is the number of bytes that one stream sends before another stream's turn. With
	// larger pieces a stream would be silent for so long that the other side would think that this
	// node stalls.
	uploadPiece = 16 << 10
)

// newFirstLimiter returns the limiter of data that precedes all other data, with half of the total
// rate. It returns nil for 0, which means unlimited.
func newFirstLimiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(max(1, bytesPerSecond/2)), uploadBurst)
}

// ThrottleFirst returns a writer for small messages that must not wait behind blobs. Their bytes
// count against Options.MaxUploadRate before all other data. A Write waits only if such messages
// alone would exceed half of that rate. A Write ends with ctx.
func (n *Node) ThrottleFirst(ctx context.Context, w io.Writer) io.Writer {
	if n.upload == nil {
		return w
	}
	return &throttled{ctx, n.first, debited{n.upload, w}}
}

// debited takes tokens for its writes from a limiter without waiting, so that other writers wait
// longer.
type debited struct {
	limiter *rate.Limiter
	w       io.Writer
}

func (d debited) Write(p []byte) (int, error) {
	d.limiter.ReserveN(time.Now(), len(p))
	return d.w.Write(p)
}

// newUploadLimiter returns the limiter of a rate in bytes per second. It returns nil for 0, which
// means unlimited.
func newUploadLimiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), uploadBurst)
}

// Throttle returns a writer whose rate counts against Options.MaxUploadRate together with all other
// writers from Throttle. A Write ends with ctx.
func (n *Node) Throttle(ctx context.Context, w io.Writer) io.Writer {
	w = counted{&n.sending, w}
	if n.upload == nil {
		return w
	}
	return &throttled{ctx, n.upload, w}
}

// throttleLast returns a writer limited to Options.MaxUploadRate, for data that lets blobs go
// first. While a blob is being sent, each piece waits three times as long as the previous piece
// took, so that this data gets a quarter of the link.
func (n *Node) throttleLast(ctx context.Context, w io.Writer) io.Writer {
	w = &yielding{ctx: ctx, busy: &n.sending, w: w}
	if n.upload == nil {
		return w
	}
	return &throttled{ctx, n.upload, w}
}

// counted counts the current writes.
type counted struct {
	active *atomic.Int32
	w      io.Writer
}

func (c counted) Write(p []byte) (int, error) {
	c.active.Add(1)
	defer c.active.Add(-1)
	return c.w.Write(p)
}

const (
	yieldStep    = 5 * time.Millisecond
	longestYield = time.Second
)

// yielding writes in small pieces, and waits before each piece while other data is being written.
type yielding struct {
	ctx  context.Context
	busy *atomic.Int32
	w    io.Writer
	took time.Duration // duration of the previous piece
}

func (y *yielding) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		for until := time.Now().Add(min(3*y.took, longestYield)); y.busy.Load() > 0 && time.Now().Before(until); {
			select {
			case <-y.ctx.Done():
				return written, y.ctx.Err()
			case <-time.After(yieldStep):
			}
		}
		part, begun := p[:min(len(p), uploadPiece)], time.Now()
		n, err := y.w.Write(part)
		y.took = max(time.Since(begun), yieldStep)
		written += n
		if err != nil {
			return written, err
		}
		p = p[n:]
	}
	return written, nil
}

type throttled struct {
	ctx     context.Context // of one stream
	limiter *rate.Limiter
	w       io.Writer
}

func (t *throttled) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), uploadPiece)]
		if err := t.limiter.WaitN(t.ctx, len(part)); err != nil {
			return written, err
		}
		n, err := t.w.Write(part)
		written += n
		if err != nil {
			return written, err
		}
		p = p[n:]
	}
	return written, nil
}
