package server_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// lockedBuffer is a buffer that goroutines can write concurrently.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// warnings returns the warnings in a log that contain a text, such as a key with its value.
func warnings(log, text string) (found []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// TestHostThatIsMainAuthorityIsWarnedOf checks that the log contains a warning only if the host is
// the main authority.
func TestHostThatIsMainAuthorityIsWarnedOf(t *testing.T) {
	for _, own := range []bool{true, false} {
		var log lockedBuffer
		o := options("")
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		if !own {
			begin := o.Runs[0]
			o.Runs[0] = func(host coordinator.ClientID) (coordinator.State, error) {
				s, err := begin(host)
				s.Authority.Main = coordinator.ClientID(backendtest.Key(7).ID())
				return s, err
			}
		}
		servertest.Start(t, o).Stop()
		if warned := len(warnings(log.String(), "key=")) > 0; warned != own {
			t.Errorf("host is the main authority: %v, warned: %v", own, warned)
		}
	}
}

// TestLogNamesRoles checks that the log contains the role of participants, and the role of
// observers only at level debug.
func TestLogNamesRoles(t *testing.T) {
	visit := func(level slog.Level, observe bool) string {
		var log lockedBuffer
		o := options("")
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
		r := servertest.Start(t, o)
		c, err := tcp.Dial(context.Background(), tcp.Options{Addr: r.Address, RunID: runID, Key: backendtest.Key(1), Observe: observe})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		r.Stop()
		return log.String()
	}
	for _, test := range []struct {
		level   slog.Level
		observe bool
		want    string // in two lines; empty if no line may contain a role
	}{
		{slog.LevelInfo, false, "role=participant"},
		{slog.LevelInfo, true, ""},
		{slog.LevelDebug, true, "role=observer"},
	} {
		text := visit(test.level, test.observe)
		if test.want == "" && strings.Contains(text, "role=") || test.want != "" && strings.Count(text, test.want) != 2 {
			t.Errorf("level %v, observer %v: want %q in two lines, have\n%s", test.level, test.observe, test.want, text)
		}
	}
}
