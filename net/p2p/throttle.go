package p2p

import (
	"context"
	"io"
	"time"

	"golang.org/x/time/rate"
)

const (
	// uploadBurst is how much may leave at once under a limit of the upload rate.
	uploadBurst = 256 << 10
	// uploadPiece is how much one stream sends before it is another one's turn. With large
	// pieces a stream would be silent for so long that its member seems to stall.
	uploadPiece = 16 << 10
)

// newFirstLimiter returns the limiter of what goes before everything else, which may use half of
// the rate that all have together; nil for 0: none.
func newFirstLimiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(max(1, bytesPerSecond/2)), uploadBurst)
}

// ThrottleFirst returns w for little messages that must not wait behind blobs: they take their part
// of Options.MaxUploadRate from what else leaves. They wait when they alone would be more than half
// of it. A Write ends with ctx.
func (n *Node) ThrottleFirst(ctx context.Context, w io.Writer) io.Writer {
	if n.upload == nil {
		return w
	}
	return &throttled{ctx, n.first, debited{n.upload, w}}
}

// debited takes what it writes from a limiter without waiting, so that others wait for longer.
type debited struct {
	limiter *rate.Limiter
	w       io.Writer
}

func (d debited) Write(p []byte) (int, error) {
	d.limiter.ReserveN(time.Now(), len(p))
	return d.w.Write(p)
}

// newUploadLimiter returns the limiter of a rate in bytes per second; nil for 0: none.
func newUploadLimiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), uploadBurst)
}

// Throttle returns w with Options.MaxUploadRate, which everything that is written through
// Throttle shares. A Write ends with ctx.
func (n *Node) Throttle(ctx context.Context, w io.Writer) io.Writer {
	if n.upload == nil {
		return w
	}
	return &throttled{ctx, n.upload, w}
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
