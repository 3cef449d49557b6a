package keep

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// TestFullDiskIsReportedOnce checks that the retries on a full disk do not repeat the error and the names of temporary files,
// that the error appears again after a minute, and that the later success is reported.
func TestFullDiskIsReportedOnce(t *testing.T) {
	b := newBench(t.TempDir(), 0)
	put := b.put
	b.put = func(string, checkpoint.Snapshot, ...checkpoint.Extra) error {
		return &fs.PathError{Op: "write", Path: "/folder/.run-step4.temporary-123456/model.safetensors", Err: syscall.ENOSPC}
	}
	m := modelOf(4)
	b.Take(m)
	b.SaveAgreed(stateAfter(4, recorded(m)))
	b.work()
	retry := func(within time.Duration) {
		for end := b.now.Add(within); b.now.Before(end); {
			b.now = b.now.Add(time.Second)
			b.tryAgain()
			b.work()
		}
	}
	reports := func() int { return strings.Count(b.log.String(), "level=ERROR") }
	retry(50 * time.Second)
	if text := b.log.String(); reports() != 1 || strings.Contains(text, "temporary") || !strings.Contains(text, syscall.ENOSPC.Error()) {
		t.Errorf("within a minute:\n%s", text)
	}
	if !errors.Is(b.Err(), syscall.ENOSPC) {
		t.Errorf("error %v", b.Err())
	}
	if retry(time.Minute); reports() != 2 {
		t.Errorf("after a minute:\n%s", &b.log)
	}
	b.put = put
	if retry(2 * time.Minute); b.Err() != nil || !strings.Contains(b.log.String(), "saved the checkpoint after earlier failures") {
		t.Errorf("with space: %v\n%s", b.Err(), &b.log)
	}
}
