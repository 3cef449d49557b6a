package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOpenDir checks that OpenDir opens the same checkpoint that ReadDir reads, of one file and of
// shards, and that it can be read after the folder was removed.
func TestOpenDir(t *testing.T) {
	for _, shardSize := range []int64{maxShardSize, 20, 1} {
		dir := filepath.Join(t.TempDir(), "model")
		want := sample(7)
		if err := writeDir(dir, want, shardSize, nil); err != nil {
			t.Fatal(err)
		}
		opened, err := OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		got := opened.Snapshot
		for i := range got.Tensors {
			if got.Tensors[i].Data != nil {
				t.Errorf("shards of %d: tensor %d is in memory", shardSize, i)
			}
			var data bytes.Buffer
			if _, err := io.Copy(&data, opened.Data[i]); err != nil {
				t.Fatal(err)
			}
			got.Tensors[i].Data = data.Bytes()
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b []byte) bool { return bytes.Equal(a, b) })); diff != "" {
			t.Errorf("shards of %d: %s", shardSize, diff)
		}
	}
}

// TestOpenDirRejects checks that OpenDir rejects the folders that ReadDir rejects.
func TestOpenDirRejects(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	if err := WriteDir(dir, sample(7)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, singleFile)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-1); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(dir); !errors.Is(err, ErrInvalid) {
		t.Errorf("a file that was cut: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}
