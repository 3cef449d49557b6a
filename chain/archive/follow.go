package archive

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/journal"
)

// Follower replays an archive that a process is still writing. Each Read continues at the end of
// the previous one.
type Follower struct {
	at   journal.Position
	r    Replayer
	read atomic.Int64 // bytes read so far, during Read
}

// ReadUntil returns approximately the number of bytes that Read has read. It may be called during
// Read.
func (f *Follower) ReadUntil() int64 { return f.read.Load() }

// State returns the state after the newest event. Callers must not modify it. ok is false before
// the first event.
func (f *Follower) State() (state *coordinator.State, ok bool) { return f.r.State() }

// Summary describes the entries read so far.
func (f *Follower) Summary() Summary { return f.r.Summary() }

// Position returns the end of the verified part of the file.
func (f *Follower) Position() journal.Position { return f.at }

// Read reads the new entries and verifies them as Replay does. It passes each event and the state
// after it to visit, which must not keep either. After an error the follower is unusable.
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
