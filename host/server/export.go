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
	framesOfLogPart = 5                        // cost of a part of the journal, in frames
	maxLogFrame     = frame.MaxLogPart + 1<<10 // encoded size of a part of the journal, in bytes
)

// Model is a model of a run in the format of package modelarchive.
type Model interface {
	io.ReaderAt
	Size() int64
}

// logPart is a part of the journal, or of the model, that a client requested.
type logPart struct {
	kind         frame.Type  // type of the frame that contains it
	from         io.ReaderAt // nil: not available
	offset, size uint64      // size of the whole file
	length       int
}

// readPart asks the writer to send a part of the journal or of the model. A part has the cost of
// several small frames, and waits for its turn among all connections that read such parts. The
// server reads the client's next frame only once the previous part is being sent. A client that
// requests parts without reading them therefore queues nothing.
func (c *connection) readPart(ctx context.Context, limiter *rate.Limiter, kind frame.Type, payload []byte) error {
	var wanted frame.ReadModel
	var err error
	if kind == frame.TypeReadModel {
		wanted, err = frame.DecodeReadModel(payload)
	} else {
		var log frame.ReadLog
		log, err = frame.DecodeReadLog(payload)
		wanted.Offset = log.Offset
	}
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	if err := limiter.WaitN(ctx, framesOfLogPart); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	part := c.host.logPart(wanted.Offset)
	if kind == frame.TypeReadModel {
		part = c.host.modelPart(ctx, wanted)
	}
	if err := c.takeEgress(ctx, part.length); err != nil {
		return err
	}
	return c.answer(ctx, answer{log: &part})
}

// logPart returns the part of the journal at offset.
func (h *host) logPart(offset uint64) logPart {
	return logPart{kind: frame.TypeLog, from: journalFile{h}, size: uint64(h.logSize.Load())}.at(offset)
}

// modelPart returns the requested part of a model.
func (h *host) modelPart(ctx context.Context, wanted frame.ReadModel) logPart {
	part, o := logPart{kind: frame.TypeModel}, &h.server.options
	var model Model
	switch {
	case wanted.Digest == [32]byte{}:
		model = o.Models[h.runID]
	case o.Recorded != nil:
		model = o.Recorded(ctx, h.runID, wanted.Digest)
	}
	if model != nil {
		part.from, part.size = model, uint64(model.Size())
	}
	return part.at(wanted.Offset)
}

// at returns the part that starts at offset.
func (p logPart) at(offset uint64) logPart {
	p.offset = offset
	if offset < p.size {
		p.length = int(min(p.size-offset, frame.MaxLogPart))
	}
	return p
}

// writePart sends a part of the journal or of the model from the disk.
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

// journalFile reads the journal of a run. It opens the file only during a read, because hundreds of
// clients may be in the middle of a download.
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
