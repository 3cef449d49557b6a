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

// Follower replays a journal while a server writes it: each Read goes on where the one before
// ended.
type Follower struct {
	at      journal.Position
	r       replayer
	resumed *coordinator.State // where another follower was; nil once it is taken up
	read    atomic.Int64       // bytes, while Read reads
}

// NewFollower returns a follower of a journal from its beginning.
func NewFollower() *Follower { return &Follower{} }

// ResumeFollower returns a follower that goes on from where another one was, in the state that it
// had there. The state is believed.
func ResumeFollower(at journal.Position, state coordinator.State) *Follower {
	return &Follower{at: at, resumed: &state}
}

// Position returns how far the follower is.
func (f *Follower) Position() journal.Position { return f.at }

// ReadUntil returns up to about which byte of the journal Read has read. Others may ask while it reads.
func (f *Follower) ReadUntil() int64 { return f.read.Load() }

// State returns the state there; nobody modifies it. ok is false before the first entry.
func (f *Follower) State() (state *coordinator.State, ok bool) {
	switch {
	case f.resumed != nil:
		return f.resumed, true
	case f.r.log == nil:
		return nil, false
	}
	return &f.r.log.State, true
}

// Run returns the hash of the run; zero before the first entry was read.
func (f *Follower) Run() (run [32]byte) {
	if f.r.log != nil {
		run = f.r.log.Run()
	}
	return run
}

// Check returns an error when the journal at path does not have what the follower has read.
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

// Read reads what is new, verifies it as Replay does, and passes each record, its number and the
// state after it to visit, which must keep neither. After an error the follower is of no use any
// more.
func (f *Follower) Read(path string, visit func(number uint64, r follow.Record, s *coordinator.State) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := f.takeUp(file); err != nil {
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

// takeUp goes on where another follower was, in the run that the journal's genesis names.
func (f *Follower) takeUp(file *os.File) error {
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
		return fmt.Errorf("%w: it has no genesis: %w", ErrReplay, err)
	}
	f.r.log = follow.Resume(log.Genesis(), *f.resumed, wire.Head{Index: uint64(f.at.Entries), Hash: f.at.Last}, nil)
	f.resumed = nil
	return nil
}
