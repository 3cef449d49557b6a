// Package eventlog writes the event logs of the runs that a server hosts.
package eventlog

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"reflect"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/event"
)

// Options configure the logs.
type Options struct {
	Dir    string                             // empty: nothing is written
	Main   string                             // run whose log is events.jsonl; other logs have the name of their run
	Watch  func(runID string, log *event.Log) // called for every log; may be nil
	Logger *slog.Logger
}

// Logs writes the states of runs to event logs, one for each run. Its methods must not be called concurrently.
type Logs struct {
	Options
	runs map[string]*Run
}

// Run is the event log of one run.
type Run struct {
	log   *event.Log
	last  event.State
	court event.Court
	names event.Names
}

// NewRun returns a Run that writes to log.
func NewRun(log *event.Log) *Run { return &Run{log: log} }

// Open creates the folder, and opens the log of the main run, to fail early.
func Open(o Options) (*Logs, error) {
	l := &Logs{Options: o, runs: make(map[string]*Run)}
	if l.Dir == "" {
		return l, nil
	}
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("--events-dir, or else --save-state-dir: %w", err)
	}
	if l.Main == "" {
		return l, nil
	}
	_, err := l.open(l.Main)
	return l, err
}

// MainLog is the log of the main run; nil if there is none.
func (l *Logs) MainLog() *event.Log {
	if run := l.runs[l.Main]; run != nil {
		return run.log
	}
	return nil
}

// open opens the log of a run.
func (l *Logs) open(runID string) (*Run, error) {
	name := url.PathEscape(runID) + ".jsonl"
	switch runID {
	case l.Main:
		name = "events.jsonl"
	case "events": // the name is already taken by the main run's log
		name = "%65vents.jsonl"
	}
	log, err := event.Unwritten(), error(nil)
	if l.Dir != "" {
		log, err = event.Open(filepath.Join(l.Dir, name))
	}
	if err != nil {
		return nil, err
	}
	if l.Watch != nil {
		l.Watch(runID, log)
	}
	l.runs[runID] = &Run{log: log}
	return l.runs[runID], nil
}

// Close closes all logs.
func (l *Logs) Close() error {
	var err error
	for _, run := range l.runs {
		err = errors.Join(err, run.log.Close())
	}
	return err
}

// Add writes a run's new state.
func (l *Logs) Add(state *coordinator.State) {
	if l.Dir == "" && l.Watch == nil {
		return
	}
	run, known := l.runs[state.RunID]
	if !known {
		var err error
		if run, err = l.open(state.RunID); err != nil {
			l.Logger.Error("open event log", "run", state.RunID, "err", err)
			run = &Run{}
			l.runs[state.RunID] = run // and do not try again
		}
	}
	if run.last.RunState == "" {
		l.append(run, event.Started{Role: "server", ID: identity.ID(state.Host).String(), RunID: state.RunID, PID: os.Getpid()})
	}
	run.See(state, l.Logger)
}

// See writes a state that differs from the last one, and new trials and ejections.
func (r *Run) See(state *coordinator.State, logger *slog.Logger) {
	if next := event.StateOf(state); !reflect.DeepEqual(next, r.last) {
		r.last = next
		r.log.Note(logger, next)
	}
	for _, news := range r.court.News(state) {
		r.log.Note(logger, news)
	}
}

// AddNames writes new display names of a run's clients.
func (l *Logs) AddNames(runID string, names core.Names) {
	run, known := l.runs[runID]
	if !known {
		return
	}
	for _, news := range run.names.News(names) {
		l.append(run, news)
	}
}

// AddCommit writes the duration of a journal commit during a round.
func (l *Logs) AddCommit(happened server.Event) {
	run, known := l.runs[happened.RunID]
	inRound := happened.RunState == coordinator.RoundTrain || happened.RunState == coordinator.RoundWitness
	if happened.Kind != server.EventCommitted || !known || !inRound {
		return
	}
	l.append(run, event.Span{Step: happened.Step, Part: event.SpanCommit, Seconds: happened.Took.Seconds()})
}

func (l *Logs) append(run *Run, body event.Body) {
	run.log.Note(l.Logger, body)
}
