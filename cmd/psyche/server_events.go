package main

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

// stateEvents writes the states of runs to event logs, one for each run. The server does not call
// add and addCommit concurrently.
type stateEvents struct {
	dir    string                             // empty: nothing is written
	main   string                             // run whose log is events.jsonl
	watch  func(runID string, log *event.Log) // called for every log; may be nil
	logger *slog.Logger
	logs   map[string]*runEvents
}

// runEvents is the event log of one run.
type runEvents struct {
	log   *event.Log
	last  event.State
	court event.Court
	names event.Names
}

// prepare creates the folder, and opens the log of the main run, to fail early.
func (e *stateEvents) prepare() error {
	if e.dir == "" {
		return nil
	}
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return fmt.Errorf("--events-dir, or else --save-state-dir: %w", err)
	}
	if e.main == "" {
		return nil
	}
	_, err := e.open(e.main)
	return err
}

// mainLog is the log of the main run; nil if there is none.
func (e *stateEvents) mainLog() *event.Log {
	if run := e.logs[e.main]; run != nil {
		return run.log
	}
	return nil
}

// open opens the log of a run.
func (e *stateEvents) open(runID string) (*runEvents, error) {
	name := url.PathEscape(runID) + ".jsonl"
	switch runID {
	case e.main:
		name = "events.jsonl"
	case "events": // the name is already taken by the main run's log
		name = "%65vents.jsonl"
	}
	log, err := event.Unwritten(), error(nil)
	if e.dir != "" {
		log, err = event.Open(filepath.Join(e.dir, name))
	}
	if err != nil {
		return nil, err
	}
	if e.watch != nil {
		e.watch(runID, log)
	}
	e.logs[runID] = &runEvents{log: log}
	return e.logs[runID], nil
}

func (e *stateEvents) close() error {
	var err error
	for _, run := range e.logs {
		err = errors.Join(err, run.log.Close())
	}
	return err
}

func (e *stateEvents) add(state *coordinator.State) {
	if e.dir == "" && e.watch == nil {
		return
	}
	run, known := e.logs[state.RunID]
	if !known {
		var err error
		if run, err = e.open(state.RunID); err != nil {
			e.logger.Error("open event log", "run", state.RunID, "err", err)
			run = &runEvents{}
			e.logs[state.RunID] = run // and do not try again
		}
	}
	if run.last.RunState == "" {
		e.append(run, event.Started{Role: "server", ID: identity.ID(state.Host).String(), RunID: state.RunID, PID: os.Getpid()})
	}
	if err := run.see(state); err != nil {
		e.logger.Error("write event", "err", err)
	}
}

// see writes a state that differs from the last one, and new trials and ejections.
func (r *runEvents) see(state *coordinator.State) (err error) {
	if next := event.StateOf(state); !reflect.DeepEqual(next, r.last) {
		r.last = next
		err = r.log.Append(next)
	}
	for _, news := range r.court.News(state) {
		err = errors.Join(err, r.log.Append(news))
	}
	return err
}

// addNames writes new display names of a run's clients.
func (e *stateEvents) addNames(runID string, names core.Names) {
	run, known := e.logs[runID]
	if !known {
		return
	}
	for _, news := range run.names.News(names) {
		e.append(run, news)
	}
}

// addCommit writes the duration of a journal commit during a round.
func (e *stateEvents) addCommit(happened server.Event) {
	run, known := e.logs[happened.RunID]
	inRound := happened.RunState == coordinator.RoundTrain || happened.RunState == coordinator.RoundWitness
	if happened.Kind != server.EventCommitted || !known || !inRound {
		return
	}
	e.append(run, event.Span{Step: happened.Step, Part: event.SpanCommit, Seconds: happened.Took.Seconds()})
}

func (e *stateEvents) append(run *runEvents, body event.Body) {
	if err := run.log.Append(body); err != nil {
		e.logger.Error("write event", "err", err)
	}
}
