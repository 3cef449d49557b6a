package p2p

import (
	"context"
	"io"

	"golang.org/x/time/rate"
)

const (
	// uploadBurst is how much may leave at once under a limit of the upload rate.
	uploadBurst = 256 << 10
	// uploadPiece is how much one stream sends before it is another one's turn. With large
	// pieces a stream would be silent for so long that its member seems to stall.
	uploadPiece = 16 << 10
)

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
