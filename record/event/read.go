package event

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"time"

	"github.com/psyche-go/psyche/base/pause"
)

// pollInterval is the interval at which Follow looks for new lines.
const pollInterval = 200 * time.Millisecond

// Read yields the events of the log at path. A torn last line ends the sequence without an error.
// The first error ends it with a zero Event.
func Read(path string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(Event{}, fmt.Errorf("read event log: %w", err))
			return
		}
		defer func() { _ = file.Close() }() // opened for reading only
		lines := newLineReader(path, file)
		for {
			e, err := lines.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Follow yields the events of the log at path and then waits for more. It also waits for a file
// that does not exist yet. When ctx is done it yields the remaining events of the file and ends: a
// caller that cancels ctx after the writing process has ended misses nothing. An error ends the
// sequence with a zero Event.
func Follow(ctx context.Context, path string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		file, err := openWhenThere(ctx, path)
		if err != nil {
			if ctx.Err() == nil {
				yield(Event{}, fmt.Errorf("follow event log: %w", err))
			}
			return
		}
		defer func() { _ = file.Close() }() // opened for reading only
		lines := newLineReader(path, file)
		for {
			over := ctx.Err() != nil // before the read, which may miss later lines
			e, err := lines.next()
			if errors.Is(err, io.EOF) {
				if over {
					return
				}
				_ = pause.For(ctx, pollInterval)
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// openWhenThere waits until path exists and opens it.
func openWhenThere(ctx context.Context, path string) (*os.File, error) {
	for {
		over := ctx.Err() != nil // before the open, which may miss a later file
		file, err := os.Open(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		if over {
			return nil, ctx.Err()
		}
		_ = pause.For(ctx, pollInterval)
	}
}

// lineReader reads whole lines and keeps the start of an incomplete line.
type lineReader struct {
	name    string
	in      *bufio.Reader
	partial []byte
	line    int // number of the line being read, from 1
}

func newLineReader(name string, in io.Reader) *lineReader {
	return &lineReader{name: name, in: bufio.NewReader(in), line: 1}
}

// next returns the next event, or io.EOF if the next line is not complete yet.
func (r *lineReader) next() (Event, error) {
	for {
		part, err := r.in.ReadSlice('\n')
		if len(r.partial)+len(part) > maxLine {
			return Event{}, fmt.Errorf("%s line %d: %w: longer than %d bytes", r.name, r.line, errInvalid, maxLine)
		}
		r.partial = append(r.partial, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return Event{}, io.EOF
		case err != nil:
			return Event{}, fmt.Errorf("%s line %d: %w", r.name, r.line, err)
		}
		e, err := Decode(r.partial)
		if err != nil {
			return Event{}, fmt.Errorf("%s line %d: %w", r.name, r.line, err)
		}
		r.partial = r.partial[:0]
		r.line++
		return e, nil
	}
}
