package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/follow"
	"github.com/psyche-go/psyche/face/dash/reported"
	"github.com/psyche-go/psyche/record/journal"
)

// Limits of a Gatherer.
const (
	maxRuns   = 512
	maxEvents = 1024 // event logs
	maxDepth  = 3    // of searched folders
	every     = 2 * time.Second
)

// Options configure a Gatherer.
type Options struct {
	// Keep saves the history of each journal in a file next to it.
	Keep bool
	// Events are patterns for the members' event logs; see filepath.Match.
	Events []string
	Logger *slog.Logger // may be nil
}

// Gatherer follows logs.
type Gatherer struct {
	options Options
	ctx     context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup

	mu     sync.Mutex
	runs   map[string]dash.Run // by key
	paths  map[string]bool     // paths of followed logs
	boards map[string]*reported.Board
}

// New returns a Gatherer. The caller must close it.
func New(ctx context.Context, o Options) *Gatherer {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	g := &Gatherer{options: o, runs: map[string]dash.Run{}, paths: map[string]bool{}, boards: map[string]*reported.Board{}}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Close stops all goroutines and saves the histories.
func (g *Gatherer) Close() {
	g.cancel()
	g.working.Wait()
}

// Runs returns the runs found, ordered by key.
func (g *Gatherer) Runs() []dash.Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]dash.Run, 0, len(g.runs))
	for _, run := range g.runs {
		if run.Reported == nil {
			run.Reported = g.boards[runIDOf(run)]
		}
		list = append(list, run)
	}
	slices.SortFunc(list, func(a, b dash.Run) int { return cmp.Compare(a.Key, b.Key) })
	return list
}

// runIDOf returns the id of a run, if it is known yet.
func runIDOf(run dash.Run) string {
	if run.Log != nil {
		if state := run.Log.View().State; state != nil {
			return state.RunID
		}
	}
	if run.State != nil {
		if state := run.State(); state != nil {
			return state.RunID
		}
	}
	return ""
}

// Found describes a log for a Gatherer.
type Found struct {
	Path   string
	Chain  bool   // it is the archive of a run on a chain
	Keep   string // file for the history of a journal; empty: not saved
	Source string
	Join   dash.Join
	State  func() *coordinator.State // may be nil
}

// Add follows a log and shows its run under key. If key is taken, the run gets a longer key that starts
// with key. Add ignores a path that is already followed. If the path is empty, Add only shows the
// state.
func (g *Gatherer) Add(key string, f Found) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.Path != "" && g.paths[f.Path] || len(g.runs) >= maxRuns {
		return
	}
	for n := 2; ; n++ {
		if _, taken := g.runs[key]; !taken {
			break
		}
		key = fmt.Sprintf("%s (%d)", strings.TrimSuffix(key, fmt.Sprintf(" (%d)", n-1)), n)
	}
	run := dash.Run{Key: key, Source: f.Source, State: f.State, Join: f.Join}
	if f.Path != "" {
		g.paths[f.Path] = true
		o := follow.Options{Path: f.Path, Keep: f.Keep, Logger: g.options.Logger}
		run.Log = follow.NewJournal(o)
		if f.Chain {
			run.Log = follow.NewArchive(o)
		}
		g.working.Go(func() { run.Log.Run(g.ctx) })
	}
	g.runs[key] = run
}

// Do runs work in a goroutine. Its context ends with Close.
func (g *Gatherer) Do(work func(ctx context.Context)) {
	g.working.Go(func() { work(g.ctx) })
}

// Watch searches files and folders for logs and event logs, now and every two seconds. Its error
// describes problems with the paths at the time of the call. describe, which may be nil, completes
// the description of a log.
func (g *Gatherer) Watch(paths []string, describe func(runID string, f *Found)) error {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return err
		}
	}
	for _, pattern := range g.options.Events {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	look := func() {
		for _, path := range paths {
			g.look(path, describe)
		}
		for _, pattern := range g.options.Events {
			found, _ := filepath.Glob(pattern) // the pattern is valid
			for _, path := range found {
				g.addEvents(path)
			}
		}
	}
	look()
	g.Do(func(ctx context.Context) {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				look()
			}
		}
	})
	return nil
}

// look finds logs in a folder.
func (g *Gatherer) look(root string, describe func(string, *Found)) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has just disappeared
		}
		if err != nil {
			return err
		}
		below, _ := filepath.Rel(root, path)
		switch {
		case entry.IsDir() && strings.Count(below, string(filepath.Separator)) >= maxDepth:
			return fs.SkipDir
		case entry.IsDir():
		case filepath.Base(path) == "events.jsonl":
			g.addEvents(path)
		case filepath.Ext(path) == ".journal" || path == root || filepath.Ext(path) == ".log" || filepath.Ext(path) == ".archive":
			g.addFile(path, describe)
		}
		return nil
	})
	if err != nil {
		g.options.Logger.Warn("cannot search a folder for logs", "folder", root, "error", err)
	}
}

// addFile follows a file if it is a log.
func (g *Gatherer) addFile(path string, describe func(string, *Found)) {
	g.mu.Lock()
	known := g.paths[path]
	g.mu.Unlock()
	if known {
		return
	}
	isLog, isArchive := kindOf(path)
	if !isLog {
		if filepath.Ext(path) != ".log" { // other programs write logs too
			g.refuse(path)
		}
		return
	}
	base := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	if id, err := url.PathUnescape(base); err == nil {
		base = id
	}
	f := Found{Path: path, Chain: isArchive, Source: path}
	if g.options.Keep && !isArchive {
		f.Keep = strings.TrimSuffix(path, filepath.Ext(path)) + ".history"
	}
	if describe != nil {
		describe(base, &f)
	}
	g.Add(base, f)
}

// kindOf reports whether a file is a log of a run, and whether the run is on a chain.
func kindOf(path string) (isLog, isArchive bool) {
	file, err := os.Open(path)
	if err != nil {
		return false, false
	}
	defer func() { _ = file.Close() }()
	begin := make([]byte, len(journal.Magic))
	if _, err := file.ReadAt(begin, 0); err != nil || string(begin) != journal.Magic {
		return false, false
	}
	return true, archive.Is(path)
}

// refuse logs once that a file cannot be shown, unless it is empty and may become a log.
func (g *Gatherer) refuse(path string) {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return
	}
	g.mu.Lock()
	g.paths[path] = true
	g.mu.Unlock()
	g.options.Logger.Warn("file not shown: not a log of a run, or from another version of this program", "file", path)
}

// addEvents follows the event log of a member.
func (g *Gatherer) addEvents(path string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paths[path] || len(g.paths) >= maxRuns+maxEvents {
		return
	}
	g.paths[path] = true
	g.working.Go(func() { reported.Follow(g.ctx, path, g.board, g.options.Logger) })
}

// board returns the board of a run's members.
func (g *Gatherer) board(runID string) *reported.Board {
	g.mu.Lock()
	defer g.mu.Unlock()
	if board, known := g.boards[runID]; known {
		return board
	}
	if len(g.boards) >= maxRuns {
		return nil
	}
	board := reported.New()
	g.boards[runID] = board
	return board
}
