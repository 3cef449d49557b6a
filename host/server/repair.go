package server

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/psyche-go/psyche/record/journal"
)

// InspectJournal describes the damage at the end of a run's journal in a save-state directory. It
// returns journal.ErrSound if a start needs no repair.
func InspectJournal(dir, runID string) (journal.Damage, error) {
	found, err := journal.Inspect(JournalPath(dir, runID))
	if err != nil {
		return found, fmt.Errorf("journal %s: %w", JournalPath(dir, runID), err)
	}
	saved, _, err := readSnapshot(snapshotPath(dir, runID))
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errSnapshot): // the server can start without a snapshot
	case err != nil:
		return found, err
	case saved.position.Offset > found.Offset:
		return found, fmt.Errorf("journal %s: the damage begins at offset %d, but %s was taken at offset %d: the repair would lose acknowledged actions; restore the journal from a copy, or remove the snapshot to accept the loss",
			JournalPath(dir, runID), found.Offset, snapshotPath(dir, runID), saved.position.Offset)
	}
	return found, nil
}

// RepairJournal truncates the damage that InspectJournal found. It returns the path of a new file
// with the removed bytes.
func RepairJournal(dir, runID string, found journal.Damage) (kept string, err error) {
	return journal.Repair(JournalPath(dir, runID), found)
}
