package tracker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/face/metrics"
)

// Sink is a destination of rows. Only one goroutine calls it.
type Sink interface {
	// Write writes rows, in order. If it returns an error, it must have written none of them: the Feed
	// passes the same rows again.
	Write(ctx context.Context, rows []metrics.Row) error
	// Close closes the sink. No rows follow.
	Close(ctx context.Context) error
}

// ErrGivenUp means that a sink will never accept rows.
var ErrGivenUp = errors.New("the tracker accepts no more rows")

// Limits of a feed.
const (
	maxWaiting = 512 // rows
	maxAtOnce  = 64
	firstPause = time.Second // after an error; later pauses double
	maxPause   = time.Minute
)

// Feed passes rows to a sink.
type Feed struct {
	name    string
	sink    Sink
	every   time.Duration // minimum interval between writes
	logger  *slog.Logger
	rows    chan metrics.Row
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	mu      sync.Mutex
	dropped int
	closed  bool
}

// Start starts to pass rows to a sink, with at most one write per interval every.
func Start(name string, sink Sink, every time.Duration, logger *slog.Logger) *Feed {
	f := &Feed{name: name, sink: sink, every: every, logger: logger, rows: make(chan metrics.Row, maxWaiting), done: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	go f.run()
	return f
}

// Take adds a row. It is an argument for Board's Listen. It never blocks.
func (f *Feed) Take(row metrics.Row) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	select {
	case f.rows <- row:
	default:
		if f.dropped++; f.dropped == 1 || f.dropped%1000 == 0 {
			f.logger.Warn("a tracker is too slow; dropping rows", "tracker", f.name, "dropped", f.dropped)
		}
	}
}

// Close writes the pending rows to the sink until ctx ends.
func (f *Feed) Close(ctx context.Context) error {
	f.mu.Lock()
	already := f.closed
	if f.closed = true; !already {
		close(f.rows)
	}
	f.mu.Unlock()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		f.cancel()
	}
	select {
	case <-f.done:
	case <-time.After(time.Second): // the sink hangs and ignores its context
	}
	return fmt.Errorf("tracker %s: some rows were not sent in time", f.name)
}

func (f *Feed) run() {
	defer close(f.done)
	defer f.cancel()
	var some []metrics.Row
	pause := firstPause
	for more, usable := true, true; more || len(some) > 0; {
		if len(some) == 0 {
			some, more = f.next()
		}
		if len(some) == 0 || !usable {
			some = nil
			continue
		}
		err := f.sink.Write(f.ctx, some)
		switch {
		case err == nil:
			some, pause = nil, firstPause
			f.sleep(f.every)
		case f.ctx.Err() != nil:
			return
		case errors.Is(err, ErrGivenUp):
			usable = false
			f.logger.Error("tracker disabled: it refuses the rows", "tracker", f.name, "err", err)
		default:
			f.logger.Warn("tracker unavailable; retrying", "tracker", f.name, "in", pause, "err", err)
			f.sleep(pause)
			pause = min(2*pause, maxPause)
		}
	}
	if err := f.sink.Close(f.ctx); err != nil {
		f.logger.Warn("cannot close a tracker", "tracker", f.name, "err", err)
	}
}

// next waits for a row and returns all pending rows. more is false after the last row.
func (f *Feed) next() (some []metrics.Row, more bool) {
	row, more := <-f.rows
	for more {
		some = append(some, row)
		if len(some) == maxAtOnce {
			break
		}
		select {
		case row, more = <-f.rows:
		default:
			return some, true
		}
	}
	return some, more
}

// sleep waits for d, or until the feed is canceled.
func (f *Feed) sleep(d time.Duration) {
	if d > 0 {
		_ = pause.For(f.ctx, d)
	}
}
