package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

// Follower replays a journal while a server writes it. Each Read continues at the end of the
// previous one.
type Follower struct {
	at      journal.Position
	r       replayer
	resumed *coordinator.State // state of the follower to resume; nil after it is loaded
	read    atomic.Int64       // bytes read so far, during Read
}

// NewFollower returns a follower that starts at the beginning of a journal.
func NewFollower() *Follower { return &Follower{} }

// ResumeFollower returns a follower that continues at another follower's position and state. It
// trusts the state.
func ResumeFollower(at journal.Position, state coordinator.State) *Follower {
	return &Follower{at: at, resumed: &state}
}

// Position returns the follower's position in the journal.
func (f *Follower) Position() journal.Position { return f.at }

// ReadUntil returns approximately the number of bytes that Read has read. It may be called during
// Read.
func (f *Follower) ReadUntil() int64 { return f.read.Load() }

// State returns the state at the follower's position. Callers must not modify it. ok is false
// before the first entry.
func (f *Follower) State() (state *coordinator.State, ok bool) {
	switch {
	case f.resumed != nil:
		return f.resumed, true
	case f.r.log == nil:
		return nil, false
	}
	return &f.r.log.State, true
}

// Run returns the hash of the run; zero before the first entry.
func (f *Follower) Run() (run [32]byte) {
	if f.r.log != nil {
		run = f.r.log.Run()
	}
	return run
}

// Check returns an error if the journal at path does not contain what the follower has read.
func (f *Follower) Check(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = journal.ReadFrom(file, f.at, func([]byte) error { return journal.ErrStop })
	if errors.Is(err, journal.ErrStop) {
		err = nil
	}
	return err
}

// Read reads the new entries and verifies them as Replay does. It passes each record, its number
// and the state after it to visit, which must not keep the record or the state. After an error the
// follower is unusable.
func (f *Follower) Read(path string, visit func(number uint64, r follow.Record, s *coordinator.State) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := f.loadResumed(file); err != nil {
		return fmt.Errorf("follow %s: %w", path, err)
	}
	number := uint64(f.at.Entries)
	summary, err := journal.ReadFrom(file, f.at, func(payload []byte) error {
		record, err := f.r.apply(payload)
		if err == nil {
			err = visit(number, record, &f.r.log.State)
		}
		if number++; number%256 == 0 {
			if until, err := file.Seek(0, io.SeekCurrent); err == nil {
				f.read.Store(until)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("follow %s: %w", path, err)
	}
	f.at = journal.Position{Offset: summary.Size, Entries: summary.Entries, Last: summary.Last}
	return nil
}

// loadResumed loads the resumed state for the run that the journal's genesis defines.
func (f *Follower) loadResumed(file *os.File) error {
	if f.resumed == nil {
		return nil
	}
	var log *follow.Follower
	_, err := journal.Read(file, func(payload []byte) (err error) {
		if _, log, err = follow.BeginWith(payload); err == nil {
			err = journal.ErrStop
		}
		return err
	})
	if log == nil {
		return fmt.Errorf("%w: no genesis: %w", ErrReplay, err)
	}
	f.r.log = follow.Resume(log.Genesis(), *f.resumed, wire.Head{Index: uint64(f.at.Entries), Hash: f.at.Last}, nil)
	f.resumed = nil
	return nil
}
