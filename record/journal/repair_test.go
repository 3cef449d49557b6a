package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/golden"
)

// TestTailOfZerosIsCut checks that zeros after the last entry are cut off. A file system may leave
// such zeros after a power failure.
func TestTailOfZerosIsCut(t *testing.T) {
	_, content := build(t, "genesis", "first")
	path := filepath.Join(t.TempDir(), "journal")
	for _, zeros := range []int{1, 39, 40, 60, 200, 4096, 70_000} {
		if err := os.WriteFile(path, append(slices.Clone(content), make([]byte, zeros)...), 0o600); err != nil {
			t.Fatal(err)
		}
		j, summary, got := open(t, path)
		if !slices.Equal(got, []string{"genesis", "first"}) || summary.Torn != int64(zeros) {
			t.Errorf("%d zeros: %q, torn %d", zeros, got, summary.Torn)
		}
		if err := errors.Join(j.Append([]byte("second")), j.Commit(), j.Close()); err != nil {
			t.Fatal(err)
		}
		j, summary, got = open(t, path)
		if err := j.Close(); err != nil || len(got) != 3 || summary.Torn != 0 {
			t.Errorf("%d zeros, after another entry: %q, %+v, %v", zeros, got, summary, err)
		}
	}
	behind := append(append(slices.Clone(content), make([]byte, 200)...), 1)
	if _, err := Read(bytes.NewReader(behind), func([]byte) error { return nil }); !errors.Is(err, ErrDamaged) {
		t.Errorf("zeros with other bytes after them: %v", err)
	}
}

func TestRepair(t *testing.T) {
	_, content := build(t, "genesis", "first", "second")
	_, whole := build(t, "genesis", "first")
	_, none := build(t)
	half := slices.Concat(whole, content[len(whole):len(content)-40], make([]byte, 4096))
	middle := slices.Clone(content)
	middle[len(none)+headerSize+7+32+headerSize] ^= 1 // payload of "first"
	for _, test := range []struct {
		name      string
		content   []byte
		left      []string
		following bool
		want      error
	}{
		{name: "half an entry and zeros", content: half, left: []string{"genesis", "first"}},
		{name: "noise", content: append(slices.Clone(whole), bytes.Repeat([]byte{7}, 500)...), left: []string{"genesis", "first"}},
		{name: "damage with an entry behind it", content: middle, left: []string{"genesis"}, following: true},
		{name: "sound", content: content, want: ErrSound},
		{name: "torn", content: content[:len(content)-1], want: ErrSound},
		{name: "zeros", content: append(slices.Clone(content), make([]byte, 100)...), want: ErrSound},
		{name: "nothing whole", content: append(slices.Clone(none), bytes.Repeat([]byte{7}, 500)...), want: ErrDamaged},
		{name: "another file", content: []byte("a text that is no journal at all"), want: ErrDamaged},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			if err := os.WriteFile(path, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
			found, err := Inspect(path)
			if test.want != nil {
				if !errors.Is(err, test.want) {
					t.Fatalf("%v, want %v", err, test.want)
				}
				return
			}
			if err != nil || found.Following > 0 != test.following || found.Entries != len(test.left) {
				t.Fatalf("got %+v, %v; want nil error and found.Following > 0 == test.following and found.Entries == len(test.left)", found, err)
			}
			kept, err := Repair(path, found)
			if err != nil {
				t.Fatal(err)
			}
			cut, err := os.ReadFile(kept)
			if err != nil || !bytes.Equal(cut, test.content[found.Offset:]) {
				t.Errorf("%d bytes were kept, want %d (%v)", len(cut), found.Size, err)
			}
			j, summary, got := open(t, path)
			if err := j.Close(); err != nil || !slices.Equal(got, test.left) || summary.Torn != 0 {
				t.Errorf("%q are left, %+v, %v", got, summary, err)
			}
		})
	}
}

func TestRepairKeepsOff(t *testing.T) {
	path, content := build(t, "genesis", "first")
	if err := os.WriteFile(path, append(slices.Clone(content), bytes.Repeat([]byte{7}, 500)...), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	other := found
	other.Size--
	_, err = Repair(path, other)
	golden.Message(t, "a file that changed", err)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := filelock.Try(file); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(path, found); !errors.Is(err, ErrLocked) {
		t.Errorf("while a server has it: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != int64(len(content))+500 {
		t.Errorf("the file was changed (%v)", err)
	}
}

// fullFile accepts room more bytes and then fails with cause.
type fullFile struct {
	*os.File
	room  int
	cause error
}

func (f *fullFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b[:min(len(b), f.room)])
	f.room -= n
	if err == nil && n < len(b) {
		err = &os.PathError{Op: "write", Path: f.Name(), Err: f.cause}
	}
	return n, err
}

// TestFullDisk fills the disk in the middle of an entry, and then frees space. It checks that the
// journal continues, except after an I/O error.
func TestFullDisk(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EIO} {
		path, _ := build(t, "genesis")
		j, _, _ := open(t, path)
		full := &fullFile{File: j.file.(*os.File), room: 50, cause: cause}
		j.file = full
		if err := j.Append([]byte("first")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := j.Commit(); !errors.Is(err, cause) || errors.Is(err, ErrFull) == errors.Is(cause, syscall.EIO) {
				t.Fatalf("%v: got %v; want error %v and errors.Is(err, ErrFull) != errors.Is(cause, syscall.EIO)", cause, err, cause)
			}
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if summary, err := Read(bytes.NewReader(content), func([]byte) error { return nil }); err != nil || summary.Entries != 1 {
			t.Errorf("%v: the file contains %+v, %v", cause, summary, err)
		}
		full.room = 1 << 20
		err = j.Commit()
		if errors.Is(cause, syscall.EIO) {
			if err == nil {
				t.Error("the journal continues after an I/O error")
			}
			_ = j.Close()
			continue
		}
		if err := errors.Join(err, j.Append([]byte("second")), j.Commit(), j.Close()); err != nil {
			t.Fatal(err)
		}
		j, _, got := open(t, path)
		if err := j.Close(); err != nil || !slices.Equal(got, []string{"genesis", "first", "second"}) {
			t.Errorf("%v: got %q, %v; want nil error and []string{\"genesis\", \"first\", \"second\"}", cause, got, err)
		}
	}
}
