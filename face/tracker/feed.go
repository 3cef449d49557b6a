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

// Sink is where rows go. One goroutine calls it.
type Sink interface {
	// Write takes rows, in order. An error means that none was taken: they come again.
	Write(ctx context.Context, rows []metrics.Row) error
	// Close ends it; there are no rows any more.
	Close(ctx context.Context) error
}

// ErrGivenUp is of a sink that will never take rows.
var ErrGivenUp = errors.New("the tracker accepts no more rows")

// Bounds of a feed.
const (
	maxWaiting = 512 // rows
	maxAtOnce  = 64
	firstPause = time.Second // after an error; it doubles
	maxPause   = time.Minute
)

// Feed gives rows to a sink.
type Feed struct {
	name    string
	sink    Sink
	every   time.Duration // between writes
	logger  *slog.Logger
	rows    chan metrics.Row
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	mu      sync.Mutex
	dropped int
	closed  bool
}

// Start begins to give rows to a sink, at most one write in the time given.
func Start(name string, sink Sink, every time.Duration, logger *slog.Logger) *Feed {
	f := &Feed{name: name, sink: sink, every: every, logger: logger, rows: make(chan metrics.Row, maxWaiting), done: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	go f.run()
	return f
}

// Take is for Board's Listen. It never waits.
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
			f.logger.Warn("a tracker does not keep up: rows are dropped", "tracker", f.name, "dropped", f.dropped)
		}
	}
}

// Close lets the sink have what waits, for as long as ctx lasts.
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
	case <-time.After(time.Second): // it hangs where no context reaches
	}
	return fmt.Errorf("tracker %s: not all rows were taken in time", f.name)
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
			f.logger.Error("tracker given up", "tracker", f.name, "err", err)
		default:
			f.logger.Warn("tracker unavailable; retrying", "tracker", f.name, "in", pause, "err", err)
			f.sleep(pause)
			pause = min(2*pause, maxPause)
		}
	}
	if err := f.sink.Close(f.ctx); err != nil {
		f.logger.Warn("end a tracker", "tracker", f.name, "err", err)
	}
}

// next waits for a row and returns all that are there; more is false after the last.
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

// sleep waits; the end of the rows cuts it short as little as a round would.
func (f *Feed) sleep(d time.Duration) {
	if d > 0 {
		_ = pause.For(f.ctx, d)
	}
}
