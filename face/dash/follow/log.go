package follow

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/history"
)

// Options configure a Log.
type Options struct {
	Path string
	// Keep is the path of the saved history of a journal. If empty, the history is not saved.
	Keep string
	// Poll is the interval between checks for new entries. Zero means 500 ms.
	Poll time.Duration
	// KeepEvery is the minimum interval between saves of the history. Zero means a minute.
	KeepEvery time.Duration
	Logger    *slog.Logger // may be nil
}

// reader reads one of the two kinds of logs.
type reader interface {
	// read passes new entries to see.
	read(see func(history.Entry, *coordinator.State) error) error
	// state returns the newest state.
	state() (*coordinator.State, bool)
	// until returns approximately how many bytes were read. It may be called during read.
	until() int64
	// run returns the run's hash, or zero if the log does not contain it.
	run() [32]byte
	// keep saves the history, if this kind of log supports it.
	keep(*history.History) error
	// costs returns the payments on a chain; nil on a server.
	costs() *history.Costs
	// extent returns the verified extent of the log.
	extent() *Extent
}

// Extent is the verified part of a log.
type Extent struct {
	Records int    `json:"records"`
	Bytes   int64  `json:"bytes"`
	Head    string `json:"head"` // hash of the newest record's entry, hex
}

// Reading is the progress of the first reading of a log.
type Reading struct {
	Bytes int64 `json:"bytes"` // bytes read
	Size  int64 `json:"size"`  // of the file
}

// View is a run at a point in time.
type View struct {
	Run     [32]byte           // its hash; zero on a chain
	State   *coordinator.State // nil if there is none yet; never modified
	Version uint64             // increases with every change
	Problem string             // reason why there are no more updates
	Costs   *history.Costs     // of a run on a chain
	Log     *Extent            // verified part
	Reading *Reading           // set from the start of the first reading until there is a state
}

// Log follows the log of a run.
type Log struct {
	options Options
	chain   bool

	mu      sync.RWMutex
	history history.History
	view    View
	reader  reader // nil before Run
}

// NewJournal returns a Log of a server's journal.
func NewJournal(o Options) *Log { return newLog(o, false) }

// NewArchive returns a Log of an archive of a run on a chain.
func NewArchive(o Options) *Log { return newLog(o, true) }

func newLog(o Options, chain bool) *Log {
	o.Poll = cmp.Or(o.Poll, 500*time.Millisecond)
	o.KeepEvery = cmp.Or(o.KeepEvery, time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Log{options: o, chain: chain}
}

// View returns the current state of the run.
func (l *Log) View() View {
	l.mu.RLock()
	defer l.mu.RUnlock()
	view := l.view
	if view.State == nil && l.reader != nil {
		if file, err := os.Stat(l.options.Path); err == nil && file.Size() > 0 {
			view.Reading = &Reading{Bytes: min(l.reader.until(), file.Size()), Size: file.Size()}
		}
	}
	return view
}

// History calls use with the history. use must not keep the history. Other users of the Log wait until
// use returns.
func (l *Log) History(use func(*history.History)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	use(&l.history)
}

// Run follows the log until ctx ends. It waits for a missing file. If the log does not verify, Run
// starts again after a while, because a starting server truncates incomplete writes.
func (l *Log) Run(ctx context.Context) {
	for delay := 5 * time.Second; ; delay = min(2*delay, 5*time.Minute) {
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		l.options.Logger.Warn("cannot follow a run's log; retrying", "log", l.options.Path, "error", err, "retry_in", delay)
		l.trouble(err.Error())
		if pause.For(ctx, delay) != nil {
			return
		}
	}
}

// follow reads the log from the end of a saved history, or from its start.
func (l *Log) follow(ctx context.Context) error {
	r := l.open()
	kept := time.Now()
	for {
		before := l.seen()
		err := r.read(l.see)
		if errors.Is(err, fs.ErrNotExist) && before == 0 {
			err = nil
		}
		if err != nil {
			return err
		}
		changed := l.seen() != before
		if state, ok := r.state(); ok && (changed || l.View().State == nil) {
			l.publish(state, r)
		}
		ending := pause.For(ctx, l.options.Poll) != nil
		if ending || changed && time.Since(kept) >= l.options.KeepEvery {
			kept = time.Now()
			l.save(r)
		}
		if ending {
			return ctx.Err()
		}
	}
}

// open returns a reader, and loads a saved history.
func (l *Log) open() reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history, l.view.Problem = history.History{}, ""
	if l.chain {
		l.reader = newArchiveReader(l.options.Path)
		return l.reader
	}
	r, kept, err := openJournalReader(l.options)
	l.reader = r
	if err != nil {
		l.options.Logger.Info("recomputing the history from the journal", "history", l.options.Keep, "reason", err)
	}
	l.history = kept
	return r
}

func (l *Log) see(e history.Entry, s *coordinator.State) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.See(e, s)
	return nil
}

func (l *Log) seen() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.history.Seen
}

func (l *Log) trouble(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.Problem = text
	l.view.Version++
}

// publish publishes a copy of the state.
func (l *Log) publish(state *coordinator.State, r reader) {
	clone := state.Clone()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.Run, l.view.State, l.view.Problem, l.view.Log = r.run(), &clone, "", r.extent()
	l.view.Costs = r.costs()
	l.view.Version++
}

func (l *Log) save(r reader) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := r.keep(&l.history); err != nil {
		l.options.Logger.Warn("the history was not saved; the next start computes it from the journal", "history", l.options.Keep, "error", err)
	}
}

// ReadAt reads verified bytes of the log: the bytes before View().Log.Bytes.
func (l *Log) ReadAt(p []byte, offset int64) (int, error) {
	known := l.View().Log
	if known == nil {
		return 0, fs.ErrNotExist
	}
	if offset < 0 || offset >= known.Bytes {
		return 0, io.EOF
	}
	file, err := os.Open(l.options.Path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	return file.ReadAt(p[:min(int64(len(p)), known.Bytes-offset)], offset)
}
