package event

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/bits"
	"os"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/filelock"
)

// ErrInUse means that another process writes the log.
var ErrInUse = errors.New("another process is writing it")

// Log appends events to a file. It is safe for concurrent use. A nil *Log does nothing.
type Log struct {
	mu       sync.Mutex
	file     *os.File // nil: only the functions of Watch receive the events
	end      int64    // of the last whole line
	torn     bool     // the file may have a part of a line after end
	lost     int      // events of Note that could not be written since the last written one
	now      func() time.Time
	watchers []func(Event)
}

// Unwritten returns a log without a file. Only the function of Watch receives its events.
func Unwritten() *Log { return &Log{now: time.Now} }

// Watch calls see for every later event, in order, after the event was written. see must not block
// and must not append.
func (l *Log) Watch(see func(Event)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers = append(l.watchers, see)
}

// Open opens the log at path for appending, and creates it if it does not exist. It removes a torn
// last line that a killed process left. It refuses a file that is not a log, and does not change
// it. It returns ErrInUse if another Log has the file open, because two writers overwrite each
// other's lines. On a file system without locks it does not notice the other Log.
func Open(path string) (*Log, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
	}
	if err := filelock.Try(file); errors.Is(err, filelock.ErrHeld) {
		return nil, errors.Join(fmt.Errorf("open event log %s: %w%s; end that process, or give this one another --events-dir", path, ErrInUse, filelock.By(err)), file.Close())
	}
	err = cutTornLine(file)
	if err == nil {
		var end int64
		if end, err = file.Seek(0, io.SeekCurrent); err == nil {
			return &Log{file: file, end: end, now: time.Now}, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("open event log %s: %w", path, err), file.Close())
}

// cutTornLine truncates file after its last newline and moves to its end.
func cutTornLine(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file", errInvalid)
	}
	tail := make([]byte, min(info.Size(), maxLine))
	start := info.Size() - int64(len(tail))
	if _, err := file.ReadAt(tail, start); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	keep := start + int64(bytes.LastIndexByte(tail, '\n')) + 1
	if keep == start && start > 0 {
		return fmt.Errorf("%w: no end of line in the last %d bytes, not an event log", errInvalid, len(tail))
	}
	if keep < info.Size() && (len(tail) == 0 || tail[keep-start] != '{') {
		return fmt.Errorf("%w: last line is not an event", errInvalid)
	}
	if err := file.Truncate(keep); err != nil {
		return err
	}
	_, err = file.Seek(keep, io.SeekStart)
	return err
}

// Append writes one event with the current time. After a failure, such as a full disk, later events
// still begin at the start of a line.
func (l *Log) Append(body Body) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.append(body)
}

// Note appends an event, and logs an error instead of returning it, because an event log that cannot be
// written stops no work. If the disk is full, every event fails, so Note logs only the first failure, the
// second, the fourth and so on.
func (l *Log) Note(logger *slog.Logger, body Body) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.append(body)
	switch {
	case err == nil && l.lost > 0:
		logger.Info("the event log is written again", "lost_events", l.lost)
		l.lost = 0
	case err == nil:
	default:
		if l.lost++; bits.OnesCount(uint(l.lost)) == 1 {
			logger.Error("cannot write an event; the work continues", "lost_events", l.lost, "err", err)
		}
	}
}

// append writes one event. The caller holds the lock.
func (l *Log) append(body Body) error {
	e := Event{Time: l.now(), Body: body}
	for _, see := range l.watchers {
		defer see(e)
	}
	if l.file == nil {
		return nil
	}
	line, err := encode(e)
	if err != nil {
		return err
	}
	if err := l.cut(); err != nil {
		return fmt.Errorf("append event: %w", err)
	}
	if _, err := l.file.Write(line); err != nil {
		l.torn = true
		return fmt.Errorf("append event: %w", errors.Join(err, l.cut()))
	}
	l.end += int64(len(line))
	return nil
}

// cut removes the part of a line that a failed write left.
func (l *Log) cut() error {
	if !l.torn {
		return nil
	}
	if err := l.file.Truncate(l.end); err != nil {
		return err
	}
	_, err := l.file.Seek(l.end, io.SeekStart)
	l.torn = err != nil
	return err
}

// Close closes the file. A later Append returns an error.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
