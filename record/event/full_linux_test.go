package event

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/psyche-go/psyche/base/disktest"
)

// TestFullDisk checks that a write that fails in the middle of a line leaves a readable log, also when later events
// fit again, and that Note logs few of many failures.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	log, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if err := log.Append(Joined{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&said, nil))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	disktest.Full(t, info.Size()+10, func() {
		if err := log.Append(Joined{Epoch: 2}); !errors.Is(err, syscall.EFBIG) {
			t.Errorf("an event on a full disk: %v", err)
		}
		for range 100 {
			log.Note(logger, Joined{Epoch: 3})
		}
	})
	log.Note(logger, Joined{Epoch: 4})
	var epochs []uint64
	for e, err := range Read(path) {
		if err != nil {
			t.Fatal(err)
		}
		epochs = append(epochs, uint64(e.Body.(Joined).Epoch))
	}
	if len(epochs) != 2 || epochs[0] != 1 || epochs[1] != 4 {
		t.Errorf("the log has the epochs %v, want 1 and 4", epochs)
	}
	if lines := strings.Count(said.String(), "\n"); lines != 8 { // failures 1, 2, 4 … 64, and the recovery
		t.Errorf("%d lines for 100 failures:\n%s", lines, &said)
	}
	if !strings.Contains(said.String(), "lost_events=100") {
		t.Errorf("the number of lost events is missing:\n%s", &said)
	}
}
