package data

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/core/assign"
	localfiles "github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/record/config"
)

func folder(t *testing.T, first byte) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.ds"), []byte{first, 0, first + 1, 0, first + 2, 0}, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestNewTakesTheFirstLocationThatWorks(t *testing.T) {
	locations := []config.DataLocation{
		{Dummy: &config.DummyData{Failing: true}},
		{Server: &config.ServerData{Addr: "127.0.0.1:1"}},
		{Local: &config.LocalData{Path: filepath.Join(t.TempDir(), "missing"), TokenSize: config.TwoBytes}},
		{Local: &config.LocalData{Path: folder(t, 10), TokenSize: config.TwoBytes}},
		{Dummy: &config.DummyData{}},
	}
	p, err := New(context.Background(), locations, Options{SeqLen: 2})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]int32{{10, 11, 12}}, read(t, p.(*fallback), 0, 1)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err = New(context.Background(), locations[:3], Options{SeqLen: 2})
	if !errors.Is(err, errFailing) || !errors.Is(err, errUnsupported) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want an error for each location", err)
	}
	if err == nil || !strings.Contains(err.Error(), "data location Server 127.0.0.1:1") {
		t.Errorf("got %v, want it to name the kinds", err)
	}
}

func TestPathReplacesTheLocations(t *testing.T) {
	address := "https://data.example/a.ds"
	locations := []config.DataLocation{{HTTP: &config.HTTPData{
		Location: config.HTTPLocation{SingleURL: &address}, TokenSize: config.TwoBytes,
	}}}
	p, err := New(context.Background(), locations, Options{SeqLen: 2, Path: folder(t, 20)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]int32{{20, 21, 22}}, read(t, p.(*fallback), 0, 1)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDummyDeliversZeros(t *testing.T) {
	p, err := New(context.Background(), []config.DataLocation{{Dummy: &config.DummyData{}}}, Options{SeqLen: 2})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]int32{{0, 0, 0}}, read(t, p.(*fallback), 0, 1)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := p.Batch(context.Background(), assign.BatchID{}); err == nil {
		t.Error("an empty batch was read")
	}
}

func TestNoLocation(t *testing.T) {
	if _, err := New(context.Background(), nil, Options{SeqLen: 2}); err == nil {
		t.Error("no error")
	}
}

func TestIsPermanent(t *testing.T) {
	dir := folder(t, 7)
	p, err := New(context.Background(), nil, Options{SeqLen: 2, VocabSize: 8, Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Batch(context.Background(), assign.BatchID{End: 1}); !IsPermanent(err) {
		t.Errorf("a token outside the vocabulary: %v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Batch(ended, assign.BatchID{End: 1}); err == nil || IsPermanent(err) {
		t.Errorf("an interrupted read: %v", err)
	}
}

// TestTheSizeOfATokenIsNotMistaken reads a folder that states the size of its tokens, as a location
// of the run and as a replacement of it. A location without a size also means two bytes, so the
// folder's size is used. A folder that contradicts a location of four bytes is an error.
func TestTheSizeOfATokenIsNotMistaken(t *testing.T) {
	for _, test := range []struct {
		size config.TokenSize
		says int
		want error
	}{{config.TwoBytes, 4, nil}, {config.FourBytes, 4, nil}, {config.TwoBytes, 2, nil}, {config.FourBytes, 2, localfiles.ErrDescribed}} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a.ds"), 1, 8)
		text, err := manifest.Manifest{Version: 1, TokenSizeInBytes: test.says, Files: []manifest.File{{Name: "a.ds", Tokens: uint64(16 / test.says)}}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, manifest.Name), text, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"", dir} {
			locations := []config.DataLocation{{Local: &config.LocalData{Path: dir, TokenSize: test.size}}}
			p, err := New(t.Context(), locations, Options{SeqLen: 1, Path: path})
			if err == nil {
				if want := uint64(16/test.says - 1); p.Len() != want {
					t.Errorf("%v of %d: %d sequences, want %d", test.size, test.says, p.Len(), want)
				}
				err = p.Close()
			}
			if !errors.Is(err, test.want) {
				t.Errorf("%v of %d, path %q: got %v, want %v", test.size, test.says, path, err, test.want)
			}
		}
	}
}
