package server

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/psyche-go/psyche/record/journal"
)

// InspectJournal says what is wrong with the end of a run's journal in a save-state directory. The
// error is journal.ErrSound when there is nothing that a start would not cut by itself.
func InspectJournal(dir, runID string) (journal.Damage, error) {
	found, err := journal.Inspect(JournalPath(dir, runID))
	if err != nil {
		return found, fmt.Errorf("journal %s: %w", JournalPath(dir, runID), err)
	}
	saved, _, err := readSnapshot(SnapshotPath(dir, runID))
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errSnapshot): // a start does without it, too
	case err != nil:
		return found, err
	case saved.position.Offset > found.Offset:
		return found, fmt.Errorf("journal %s: the damage begins at offset %d, but %s was taken at offset %d: the repair would lose acknowledged actions; restore the journal from a copy, or remove the snapshot to accept the loss",
			JournalPath(dir, runID), found.Offset, SnapshotPath(dir, runID), saved.position.Offset)
	}
	return found, nil
}

// RepairJournal cuts off what InspectJournal has found. It returns the path of the new file that has
// what was cut off.
func RepairJournal(dir, runID string, found journal.Damage) (kept string, err error) {
	return journal.Repair(JournalPath(dir, runID), found)
}
