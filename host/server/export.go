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

// Model is what a server hands out of the model that a run begins with, as package parcel has it.
type Model interface {
	io.ReaderAt
	Size() int64
}

// logPart is a part of the journal, or of the model, that a client asked for.
type logPart struct {
	kind         frame.Type  // of the frame that has it
	from         io.ReaderAt // nil: there is none
	offset, size uint64      // size of the whole that is on the disk
	length       int
}

// readPart lets the writer send a part of the journal, or of the model. It costs as much as many small frames, and
// waits for its turn among all who read such parts. The client's next frame is read when the one
// part before it is on its way, so whoever asks and does not read makes nothing pile up.
func (c *connection) readPart(ctx context.Context, limiter *rate.Limiter, kind frame.Type, payload []byte) error {
	wanted, err := frame.DecodeReadLog(payload)
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	if err := limiter.WaitN(ctx, framesOfLogPart); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	part := c.host.logPart(wanted.Offset)
	if kind == frame.TypeReadModel {
		part = c.host.modelPart(wanted.Offset)
	}
	if err := c.takeEgress(ctx, part.length); err != nil {
		return err
	}
	return c.answer(ctx, answer{log: &part})
}

// logPart returns what there is of the journal from offset on.
func (h *host) logPart(offset uint64) logPart {
	return logPart{kind: frame.TypeLog, from: journalFile{h}, size: uint64(h.logSize.Load())}.at(offset)
}

// modelPart returns what there is of the model that the run begins with, from offset on.
func (h *host) modelPart(offset uint64) logPart {
	part := logPart{kind: frame.TypeModel}
	if model := h.server.options.Models[h.runID]; model != nil {
		part.from, part.size = model, uint64(model.Size())
	}
	return part.at(offset)
}

// at returns the part that begins at an offset.
func (p logPart) at(offset uint64) logPart {
	p.offset = offset
	if offset < p.size {
		p.length = int(min(p.size-offset, frame.MaxLogPart))
	}
	return p
}

// writePart sends a part of the journal, or of the model, from the disk.
func (c *connection) writePart(ctx context.Context, part logPart) error {
	if ctx.Err() != nil {
		return nil
	}
	whole := io.Reader(bytes.NewReader(frame.PartHead(part.kind, part.offset, part.size, part.length)))
	size := int64(len(frame.PartHead(part.kind, 0, 0, 0)) + part.length)
	if part.length > 0 {
		whole = io.MultiReader(whole, io.NewSectionReader(part.from, int64(part.offset), int64(part.length)))
	}
	if err := c.conn.WriteFrom(ctx, c.writeTimeout, whole, size); err != nil {
		return err
	}
	c.tookBytes(ctx, part.length)
	return nil
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
