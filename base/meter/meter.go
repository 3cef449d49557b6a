// Package meter prints the progress of long operations and estimates the remaining time.
//
//	m := meter.New(os.Stderr, "psyche: verifying run.log")
//	m.At(done, all) // any number of times, from one goroutine at a time
//	m.Done()
//
// Operations shorter than two seconds print nothing. On a terminal, one line is updated and finally
// erased. In a file, a line is written every ten seconds. Logged does the same for a log.
package meter

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/charmbracelet/x/term"
)

const (
	quiet       = 2 * time.Second // without output at the start
	everyScreen = time.Second / 2
	everyFile   = 10 * time.Second
)

// Meter shows the progress of one operation.
type Meter struct {
	w      io.Writer
	label  string
	screen bool
	now    func() time.Time

	begun, next time.Time
	from        int64 // already done when the operation started
	started     bool
	shown       bool // a line is on the screen
	note        func() string
}

// New starts an operation. label precedes each line.
func New(w io.Writer, label string) *Meter {
	file, ok := w.(*os.File)
	m := &Meter{w: w, label: label, screen: ok && term.IsTerminal(file.Fd()), now: time.Now}
	m.begun = m.now()
	m.next = m.begun.Add(quiet)
	return m
}

// Note appends the result of text to each line.
func (m *Meter) Note(text func() string) { m.note = text }

// At reports that done of all is complete, in any unit. It writes only occasionally.
func (m *Meter) At(done, all int64) {
	now := m.now()
	if !m.due(now, done, all) {
		return
	}
	line := fmt.Sprintf("%s: %d %%", m.label, 100*min(done, all)/all)
	if left, known := m.left(now, done, all); known {
		line += ", " + Span(left) + " left"
	}
	if m.note != nil {
		line += "; " + m.note()
	}
	if !m.screen {
		m.next = now.Add(everyFile)
		_, _ = fmt.Fprintln(m.w, line) // errors of progress lines do not matter
		return
	}
	m.next, m.shown = now.Add(everyScreen), true
	_, _ = fmt.Fprintf(m.w, "\r\x1b[K%s", line)
}

// due reports whether a line is due.
func (m *Meter) due(now time.Time, done, all int64) bool {
	if !m.started {
		m.started, m.from, m.begun = true, done, now
	}
	return !now.Before(m.next) && all > 0
}

// left estimates the remaining time from the progress since the start.
func (m *Meter) left(now time.Time, done, all int64) (left time.Duration, known bool) {
	moved := done - m.from
	if moved <= 0 || done >= all {
		return 0, false
	}
	return time.Duration(float64(now.Sub(m.begun)) / float64(moved) * float64(all-done)), true
}

// Logged returns a function that logs the progress of an operation, in bytes, every ten seconds.
func Logged(logger *slog.Logger, label string) func(done, all int64) {
	return New(io.Discard, label).logged(logger)
}

func (m *Meter) logged(logger *slog.Logger) func(done, all int64) {
	m.next = m.begun.Add(everyFile)
	return func(done, all int64) {
		now := m.now()
		if !m.due(now, done, all) {
			return
		}
		m.next = now.Add(everyFile)
		attributes := []any{"percent", 100 * min(done, all) / all, "MiB", all >> 20}
		if left, known := m.left(now, done, all); known {
			attributes = append(attributes, "left", Span(left))
		}
		logger.Info(m.label, attributes...)
	}
}

// Done erases the line.
func (m *Meter) Done() {
	if m.shown {
		m.shown = false
		_, _ = io.WriteString(m.w, "\r\x1b[K")
	}
}

// Reader returns a reader that updates the meter while it reads size bytes.
func (m *Meter) Reader(r io.Reader, size int64) io.Reader {
	return &reader{Reader: r, meter: m, size: size}
}

type reader struct {
	io.Reader
	meter      *Meter
	read, size int64
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.read += int64(n)
	r.meter.At(r.read, r.size)
	return n, err
}

// Span formats a duration as the dashboard does.
func Span(d time.Duration) string {
	switch s := d.Seconds(); {
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 90:
		return fmt.Sprintf("%.0f s", s)
	case s < 5400:
		return fmt.Sprintf("%.0f min", s/60)
	case s < 129600:
		return fmt.Sprintf("%.1f h", s/3600)
	default:
		return fmt.Sprintf("%.1f days", s/86400)
	}
}
