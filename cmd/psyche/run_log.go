package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/receipt"
)

// logEntry is an entry in the log of a run on a server, or in the archive of a run on a chain.
type logEntry struct {
	receipt.Entry
	number uint64 // as on the dashboard: from 0 in a server's log, from 1 on a chain
	record fmt.Stringer
}

// logEnd is the end of a verified log.
type logEnd struct {
	entries uint64
	last    uint64 // number of the last entry
	run     [32]byte
	state   coordinator.State
	account string // of a run on a chain: the account whose head must match the log; empty on a server
	head    [32]byte
}

// first returns the number of the first entry.
func (l *logEnd) first() uint64 { return l.last + 1 - l.entries }

// metered opens a log and prints the progress of its reader, labelled with name.
func metered(path, name string, to io.Writer) (from io.Reader, done func(), err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("replay: %w", err)
	}
	size := int64(0)
	if info, err := file.Stat(); err == nil {
		size = info.Size()
	}
	m := meter.New(to, "psyche: verifying "+name)
	return m.Reader(file, size), func() { m.Done(); _ = file.Close() }, nil
}

// replayMetered verifies the log of a run on a server, and prints the progress.
func replayMetered(path, name string, to io.Writer) (*follow.Follower, journal.Summary, error) {
	from, done, err := metered(path, name, to)
	if err != nil {
		return nil, journal.Summary{}, err
	}
	defer done()
	return server.ReplayFrom(path, from, nil)
}

// readLog verifies the log of a run, and calls see with each entry and the state after it. see must not
// keep the state.
func readLog(path string, to io.Writer, see func(logEntry, *coordinator.State)) (logEnd, error) {
	from, done, err := metered(path, filepath.Base(path), to)
	if err != nil {
		return logEnd{}, err
	}
	defer done()
	if archive.Is(path) {
		return readArchive(path, from, see)
	}
	var head [32]byte
	next := uint64(0)
	log, summary, err := server.ReplayFrom(path, from, func(r follow.Record, s *coordinator.State) error {
		e := receipt.EntryOf(head, r)
		head = e.Head
		see(logEntry{Entry: e, number: next, record: r}, s)
		next++
		return nil
	})
	if err != nil {
		return logEnd{}, err
	}
	return logEnd{entries: uint64(summary.Entries), last: next - 1, run: log.Run(), state: log.State, head: head}, nil
}

func readArchive(path string, from io.Reader, see func(logEntry, *coordinator.State)) (logEnd, error) {
	state, summary, err := archive.ReplayFrom(path, from, func(step archive.Step, s *coordinator.State) error {
		e := receipt.Entry{Head: step.Event.Head, Time: step.Event.Now, Actor: coordinator.ClientID(step.Actor), Action: step.Action()}
		if step.Event.Instruction == event.Genesis {
			e.Run = step.Header.RunHash()
		}
		see(logEntry{Entry: e, number: step.Event.Sequence, record: chainStep(step)}, s)
		return nil
	})
	if err != nil {
		return logEnd{}, err
	}
	return logEnd{
		entries: summary.Sequence, last: summary.Sequence, run: summary.RunHash(), state: state, account: summary.Run.String(), head: summary.Head,
	}, nil
}

// chainStep formats a step of a run on a chain.
type chainStep archive.Step

func (s chainStep) String() string {
	at := fmt.Sprintf("in slot %d, transaction %s", s.Event.Slot, s.Transaction)
	step := archive.Step(s)
	switch action := step.Action(); {
	case s.Event.Instruction == event.Genesis:
		return fmt.Sprintf("genesis by %s %s", s.Actor, at)
	case action != nil:
		return fmt.Sprintf("%s by %s %s", follow.ActionName(action), identity.ID(s.Actor), at)
	}
	return fmt.Sprintf("tick at %s %s, paid by %s", time.UnixMilli(int64(min(s.Event.Now, 1<<53))).UTC().Format("2006-01-02T15:04:05.000Z"), at, s.Signer)
}

// proof explains what to compare with a verified log.
func (l *logEnd) proof(path string) string {
	if l.account == "" {
		return ""
	}
	return fmt.Sprintf("This is the run's whole history if the account %s on the chain has the head %x at event %d, or continues from it:\n"+
		"psyche run archive --output %s compares them.\n", l.account, l.head, l.last, path)
}
