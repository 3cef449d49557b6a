package archive

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/journal"
)

// Follower replays an archive while somebody writes it: each Read goes on where the one before
// ended.
type Follower struct {
	at   journal.Position
	r    Replayer
	read atomic.Int64 // bytes, while Read reads
}

// ReadUntil returns up to about which byte of the archive Read has read. Others may ask while it reads.
func (f *Follower) ReadUntil() int64 { return f.read.Load() }

// State returns the state after the newest event; nobody modifies it. ok is false before the first.
func (f *Follower) State() (state *coordinator.State, ok bool) { return f.r.State() }

// Summary says what was read so far.
func (f *Follower) Summary() Summary { return f.r.Summary() }

// Position returns up to which entry of the file everything was verified.
func (f *Follower) Position() journal.Position { return f.at }

// Read reads what is new, verifies it as Replay does, and passes each event and the state after it
// to visit, which must keep neither. After an error the follower is of no use any more.
func (f *Follower) Read(path string, visit func(Step, *coordinator.State) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	defer func() { _ = file.Close() }()
	f.r.Visit = visit
	records := 0
	summary, err := journal.ReadFrom(file, f.at, func(payload []byte) error {
		if records++; records%256 == 0 {
			if until, err := file.Seek(0, io.SeekCurrent); err == nil {
				f.read.Store(until)
			}
		}
		return f.r.Take(payload)
	})
	if err != nil {
		return fmt.Errorf("follow %s: %w", path, err)
	}
	f.at = journal.Position{Offset: summary.Size, Entries: summary.Entries, Last: summary.Last}
	return nil
}
