package meter

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestMeter checks that short work is not reported. Longer work is reported with its progress and
// with the remaining time, estimated from the rate since the start.
func TestMeter(t *testing.T) {
	for _, screen := range []bool{false, true} {
		var out strings.Builder
		m := New(&out, "reading")
		at := m.begun
		m.now, m.screen = func() time.Time { return at }, screen
		for second := range 26 {
			m.At(500+int64(second)*20, 1000)
			at = at.Add(time.Second)
		}
		m.At(1000, 1000)
		m.Done()
		got := strings.Split(strings.Trim(strings.ReplaceAll(out.String(), "\r\x1b[K", "\n"), "\n"), "\n")
		first, last := "reading: 54 %, 23 s left", "reading: 100 %"
		if want := map[bool]int{false: 3, true: 25}[screen]; len(got) != want || got[0] != first || screen && got[want-1] != last {
			t.Errorf("screen %v: %q", screen, got)
		}
		if screen != strings.HasSuffix(out.String(), "\r\x1b[K") {
			t.Errorf("screen %v: the output ends with %q", screen, out.String())
		}
	}
}

// TestLogged checks that a log gets a line every ten seconds, with the remaining time.
func TestLogged(t *testing.T) {
	var out strings.Builder
	m := New(io.Discard, "hashing")
	at := m.begun
	m.now = func() time.Time { return at }
	tell := m.logged(slog.New(slog.NewTextHandler(&out, nil)))
	for second := range int64(26) {
		tell(second<<20, 100<<20)
		at = at.Add(time.Second)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], `msg=hashing percent=10 MiB=100 left="2 min"`) || !strings.Contains(lines[1], "percent=20") {
		t.Errorf("got %q; want len(lines) == 2 and text that ends with `msg=hashing percent=10 MiB=100 left=\"2 min\"` and text with \"percent=20\"", lines)
	}
}

// TestReader checks that the bytes that a reader returns are counted.
func TestReader(t *testing.T) {
	var out strings.Builder
	m := New(&out, "reading")
	m.next = m.begun
	if n, err := io.Copy(io.Discard, m.Reader(strings.NewReader("12345678"), 16)); n != 8 || err != nil || out.String() != "reading: 50 %\n" {
		t.Errorf("%d bytes, %v, %q", n, err, out.String())
	}
}

func TestSpan(t *testing.T) {
	for span, want := range map[time.Duration]string{1500 * time.Millisecond: "1.5 s", 89 * time.Second: "89 s", 100 * time.Second: "2 min", 2 * time.Hour: "2.0 h", 48 * time.Hour: "2.0 days"} {
		if got := Span(span); got != want {
			t.Errorf("%v: %s, want %s", span, got, want)
		}
	}
}
