// Package meter says how far something is that takes more than a moment, and how long it will still take.
//
//	m := meter.New(os.Stderr, "psyche: verifying run.log")
//	m.At(done, all) // as often as one likes, from one goroutine at a time
//	m.Done()
//
// Work that is over within two seconds says nothing. A terminal has one line, which is overwritten and taken away
// at the end; a file has a line every ten seconds. Logged does the same for a log.
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
	quiet       = 2 * time.Second // in which nothing is said
	everyScreen = time.Second / 2
	everyFile   = 10 * time.Second
)

// Meter says how far one thing is.
type Meter struct {
	w      io.Writer
	label  string
	screen bool
	now    func() time.Time

	begun, next time.Time
	from        int64 // where it began: what was done before took no time now
	started     bool
	shown       bool // a line is on the screen
	note        func() string
}

// New begins. what is said before each figure.
func New(w io.Writer, label string) *Meter {
	file, ok := w.(*os.File)
	m := &Meter{w: w, label: label, screen: ok && term.IsTerminal(file.Fd()), now: time.Now}
	m.begun = m.now()
	m.next = m.begun.Add(quiet)
	return m
}

// Note has what a function returns said behind the figures.
func (m *Meter) Note(text func() string) { m.note = text }

// At says that so much of all is done, in any unit. It writes now and then only.
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
		_, _ = fmt.Fprintln(m.w, line) // what is measured is worth more than the line about it
		return
	}
	m.next, m.shown = now.Add(everyScreen), true
	_, _ = fmt.Fprintf(m.w, "\r\x1b[K%s", line)
}

// due reports whether it is time to say something.
func (m *Meter) due(now time.Time, done, all int64) bool {
	if !m.started {
		m.started, m.from, m.begun = true, done, now
	}
	return !now.Before(m.next) && all > 0
}

// left is how long it still takes, by what was done since it began.
func (m *Meter) left(now time.Time, done, all int64) (left time.Duration, known bool) {
	moved := done - m.from
	if moved <= 0 || done >= all {
		return 0, false
	}
	return time.Duration(float64(now.Sub(m.begun)) / float64(moved) * float64(all-done)), true
}

// Logged returns a function that says to a log every ten seconds how far something of so many bytes is.
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

// Done takes the line away.
func (m *Meter) Done() {
	if m.shown {
		m.shown = false
		_, _ = io.WriteString(m.w, "\r\x1b[K")
	}
}

// Reader tells the meter how much was read of something of that size in bytes.
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

// Span writes a stretch of time as the dashboard does.
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
