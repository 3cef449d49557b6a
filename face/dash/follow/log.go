package follow

import (
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

// Options of a Log.
type Options struct {
	Path string
	// Keep is the file in which the history of a journal is kept. Empty: in none.
	Keep string
	// Poll is how often to look for what is new. Zero: 500 ms.
	Poll time.Duration
	// KeepEvery is how often the history is written at most. Zero: a minute.
	KeepEvery time.Duration
	Logger    *slog.Logger // nil: nothing is logged
}

// reader is what both kinds of logs have.
type reader interface {
	// read passes what is new to see.
	read(see func(history.Entry, *coordinator.State) error) error
	// state returns the newest state.
	state() (*coordinator.State, bool)
	// until returns up to about which byte the log was read; others may ask while it is.
	until() int64
	// run returns the run's hash, zero where the log does not have it.
	run() [32]byte
	// keep writes the history beside the log, if this kind of log does.
	keep(*history.History) error
	// costs returns what a chain was paid; nil on a server.
	costs() *history.Costs
	// extent says how much of the log was read.
	extent() *Extent
}

// Extent is how much of a log there is.
type Extent struct {
	Records int    `json:"records"`
	Bytes   int64  `json:"bytes"`
	Head    string `json:"head"` // hash of the newest record's entry, hex
}

// Reading is how far the first reading of a log is.
type Reading struct {
	Bytes int64 `json:"bytes"` // that were read
	Size  int64 `json:"size"`  // of the file
}

// View is a run at a moment.
type View struct {
	Run     [32]byte           // its hash; zero on a chain
	State   *coordinator.State // nil before there is one; nobody modifies it
	Version uint64             // grows with every change
	Problem string             // why nothing comes any more
	Costs   *history.Costs     // of a run on a chain
	Log     *Extent            // of what was verified
	Reading *Reading           // before there is a state, once the log's reading has begun
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
	if o.Poll == 0 {
		o.Poll = 500 * time.Millisecond
	}
	if o.KeepEvery == 0 {
		o.KeepEvery = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Log{options: o, chain: chain}
}

// View returns what is known of the run.
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

// History calls use with the history, which must not be kept. It is used by nobody else meanwhile.
func (l *Log) History(use func(*history.History)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	use(&l.history)
}

// Run follows the log until ctx ends. A file that is not there yet is waited for; one that does not
// verify is begun anew after a while, since a server that starts cuts what is torn off.
func (l *Log) Run(ctx context.Context) {
	for delay := 5 * time.Second; ; delay = min(2*delay, 5*time.Minute) {
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		l.options.Logger.Warn("the history of a run stands still", "log", l.options.Path, "error", err, "again", delay)
		l.trouble(err.Error())
		if pause.For(ctx, delay) != nil {
			return
		}
	}
}

// follow reads the log from where a kept history ends, or from its beginning.
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

// open returns a reader, and takes a kept history.
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

// publish shows a copy of the state.
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

// ReadAt reads bytes of the log that were verified: those before View().Log.Bytes.
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
