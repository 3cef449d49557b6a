package client

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/record/event"
)

// TestUnwritableEvents checks that a full disk, on which every event fails, does not fill the log with errors, and that the
// log states when events are written again.
func TestUnwritableEvents(t *testing.T) {
	open := func(name string) *event.Log {
		t.Helper()
		events, err := event.Open(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	closed, working := open("closed"), open("working")
	defer func() { _ = working.Close() }()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r := &reporter{events: closed, log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 100 {
		r.emit(event.Finished{})
	}
	if got := strings.Count(log.String(), "level=ERROR"); got != 7 { // 1, 2, 4, …, 64
		t.Errorf("%d errors for 100 events:\n%s", got, &log)
	}
	r.events = working
	r.emit(event.Finished{})
	r.emit(event.Finished{})
	if got := strings.Count(log.String(), "written again\" lost_events=100"); got != 1 {
		t.Errorf("%d reports of the end:\n%s", got, &log)
	}
}
