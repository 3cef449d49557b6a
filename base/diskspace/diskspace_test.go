package diskspace

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/psyche-go/psyche/base/diskspace/diskspacetest"
	"github.com/psyche-go/psyche/base/golden"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	of := func(s Space) Probe { return func(string) Space { return s } }
	for _, test := range []struct {
		free Space
		need uint64
		fits bool
	}{
		{Space{}, 1 << 60, true}, {Bytes(0), 0, true}, {Bytes(0), 1, false}, {Bytes(5), 5, true}, {Bytes(5), 6, false}, {Bytes(5).Plus(1), 6, true}, {Space{}.Plus(1), 6, true},
		{Bytes(math.MaxUint64).Plus(5), 1 << 60, true},
	} {
		err := Check(dir, "the files", test.need, of(test.free))
		if errors.Is(err, ErrTooLittle) == test.fits {
			t.Errorf("%d bytes in %+v: %v", test.need, test.free, err)
		}
	}
	golden.Message(t, "3 GiB", Check(dir, "the files", 3<<30, of(Bytes(5<<20))))
	if err := Check(dir, "the files", 0, nil); err != nil {
		t.Error(err)
	}
}

// TestOf checks that a folder that does not exist yet has the space of its parent.
func TestOf(t *testing.T) {
	dir := t.TempDir()
	free, known := Of(dir).Known()
	if !known {
		t.Skip("the free space is not known here")
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "a", "b"), filepath.Join(file, "c")} {
		if later, known := Of(path).Known(); !known || later > 2*free+1<<30 || Folder(path) != dir {
			t.Errorf("%s: got %d, %v; %s; want known and later <= 2*free + 1<<30 and Folder(path) == dir", path, later, known, Folder(path))
		}
	}
	if _, known := Of("/proc/self").Known(); known {
		t.Error("/proc reports free space")
	}
}

// TestFullDisk checks that a full file system has 0 free bytes, which differs from unknown.
func TestFullDisk(t *testing.T) {
	dir := diskspacetest.Mount(t, 1<<20)
	if free, known := Of(dir).Known(); !known || free != 1<<20 {
		t.Errorf("empty: %d, %v", free, known)
	}
	err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 2<<20), 0o600)
	if !IsFull(err) {
		t.Error(err)
	}
	if free, known := Of(dir).Known(); !known || free != 0 {
		t.Errorf("full: %d, %v", free, known)
	}
	if err := Check(filepath.Join(dir, "b"), "the files", 1, nil); !errors.Is(err, ErrTooLittle) {
		t.Error(err)
	}
}

func TestIsFull(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if !IsFull(fmt.Errorf("a: %w", &fs.PathError{Op: "write", Path: "b", Err: cause})) {
			t.Error(cause)
		}
	}
	if IsFull(nil) || IsFull(fs.ErrPermission) {
		t.Error("another error")
	}
}

// TestFormat checks the units, and that no text needs more than nine characters.
func TestFormat(t *testing.T) {
	for bytes, want := range map[float64]string{
		0: "0 B", 1: "1 B", 999: "999 B", 999.4: "999 B", 999.5: "1.0 KiB", 1000: "1.0 KiB", 1024: "1.0 KiB", 1536: "1.5 KiB",
		999.9 * (1 << 10): "999.9 KiB", 999.96 * (1 << 10): "1.0 MiB", 1 << 20: "1.0 MiB", 999.96 * (1 << 20): "1.0 GiB",
		5 << 30: "5.0 GiB", 999.96 * (1 << 30): "1.0 TiB", 7 << 40: "7.0 TiB", 999.9 * (1 << 40): "999.9 TiB", 1 << 60: "1048576.0 TiB",
	} {
		if got := Format(bytes); got != want || len(got) > 9 && bytes < 1<<50 {
			t.Errorf("%f: %q, want %q", bytes, got, want)
		}
	}
	if got := Format(uint64(math.MaxUint64)); got != "16777216.0 TiB" {
		t.Error(got)
	}
}
