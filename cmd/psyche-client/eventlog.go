package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/record/event"
)

// eventsFile is the name of the event log in its folder.
const eventsFile = "events.jsonl"

// openEventLog opens the event log in a folder. Without a folder, it returns a log that writes
// nothing.
func openEventLog(dir string) (*event.Log, error) {
	if dir == "" {
		return event.Unwritten(), nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make events folder: %w", err)
	}
	return event.Open(filepath.Join(dir, eventsFile))
}

// beginEventLog opens the event log of a process that is not in a run.
func beginEventLog(dir, role string) (*event.Log, error) {
	events, err := openEventLog(dir)
	if err != nil {
		return nil, err
	}
	return events, events.Append(event.Started{Role: role, PID: os.Getpid()})
}

// endEventLog closes an event log. If why is not nil, it first records why as the error that ended
// the process.
func endEventLog(events *event.Log, why error) error {
	var err error
	if why != nil {
		err = events.Append(event.Failed{Error: why.Error()})
	}
	return errors.Join(err, events.Close())
}
