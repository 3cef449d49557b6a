package archive

import (
	"fmt"
	"os"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/journal"
)

// Follower replays an archive while somebody writes it: each Read goes on where the one before
// ended.
type Follower struct {
	at journal.Position
	r  replayer
}

// State returns the state after the newest event; nobody modifies it. ok is false before the first.
func (f *Follower) State() (state *coordinator.State, ok bool) {
	if f.r.run == nil || f.r.run.Sequence == 0 {
		return nil, false
	}
	return &f.r.run.State, true
}

// Summary says what was read so far.
func (f *Follower) Summary() Summary {
	if f.r.run == nil {
		return Summary{}
	}
	return f.r.summary()
}

// Read reads what is new, verifies it as Replay does, and passes each event and the state after it
// to visit, which must keep neither. After an error the follower is of no use any more.
func (f *Follower) Read(path string, visit func(Step, *coordinator.State) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	defer func() { _ = file.Close() }()
	f.r.visit = visit
	summary, err := journal.ReadFrom(file, f.at, f.r.take)
	if err != nil {
		return fmt.Errorf("follow %s: %w", path, err)
	}
	f.at = journal.Position{Offset: summary.Size, Entries: summary.Entries, Last: summary.Last}
	return nil
}
