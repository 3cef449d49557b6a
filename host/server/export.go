package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/net/frame"
)

const (
	framesOfLogPart = 5                        // what a part of the journal counts for
	maxLogFrame     = frame.MaxLogPart + 1<<10 // bytes of a part on the line
)

// logPart is a part of the journal that a client asked for.
type logPart struct {
	offset, size uint64 // size of the journal that is on the disk
	length       int
}

// readLog lets the writer send a part of the journal. It costs as much as many small frames, and
// waits for its turn among all who read journals. The client's next frame is read when the one
// part before it is on its way, so whoever asks and does not read makes nothing pile up.
func (c *connection) readLog(ctx context.Context, limiter *rate.Limiter, payload []byte) error {
	wanted, err := frame.DecodeReadLog(payload)
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	if err := limiter.WaitN(ctx, framesOfLogPart); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	part := c.host.logPart(wanted.Offset)
	if err := c.server.egress.Take(ctx, c.conn.RemoteAddr(), part.length); err != nil {
		return err
	}
	return c.answer(ctx, answer{log: &part})
}

// logPart returns what there is of the journal from offset on.
func (h *host) logPart(offset uint64) logPart {
	part := logPart{offset: offset, size: uint64(h.logSize.Load())}
	if offset < part.size {
		part.length = int(min(part.size-offset, frame.MaxLogPart))
	}
	return part
}

// writeLog sends a part of the journal from the disk.
func (c *connection) writeLog(ctx context.Context, part logPart) error {
	err := c.conn.BoundWrites(ctx, frame.WriteTimeout)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	head := frame.LogHead(part.offset, part.size, part.length)
	journal := io.NewSectionReader(journalFile{c.host}, int64(part.offset), int64(part.length))
	return c.conn.WriteFrom(io.MultiReader(bytes.NewReader(head), journal), int64(len(head)+part.length))
}

// journalFile reads the journal of a run. It is open only while it is read: hundreds of clients may
// be in the middle of a part.
type journalFile struct{ host *host }

// ReadAt implements io.ReaderAt.
func (f journalFile) ReadAt(b []byte, offset int64) (int, error) {
	n := 0
	opened, err := os.Open(f.host.store.journalPath)
	if err == nil {
		n, err = opened.ReadAt(b, offset)
		_ = opened.Close()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		f.host.logger.Error("cannot read the journal", "error", err)
	}
	return n, err
}
