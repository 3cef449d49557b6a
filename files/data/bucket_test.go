package data

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/objstore"
	"github.com/psyche-go/psyche/files/objstore/gcs"
	"github.com/psyche-go/psyche/files/objstore/gcs/fakegcs"
	"github.com/psyche-go/psyche/record/config"
)

// upload copies a folder's files into a bucket.
func upload(t *testing.T, server *fakegcs.Server, dir, below string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	held, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, held...) {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // a folder
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			t.Fatal(err)
		}
		server.Set("public", below+filepath.ToSlash(name), content)
	}
}

func anonymously(ctx context.Context, name string) (objstore.Store, error) {
	return gcs.Open(ctx, name, gcs.Options{Pause: time.Millisecond})
}

func gcp(directory string, shuffle config.Shuffle) config.DataLocation {
	return config.DataLocation{HTTP: &config.HTTPData{
		Location:  config.HTTPLocation{Gcp: &config.GcpBucket{BucketName: "public", FilterDirectory: directory}},
		TokenSize: config.TwoBytes, Shuffle: shuffle,
	}}
}

// TestTheSameTokensFromABucket also checks that other files and held-out files are left out.
func TestTheSameTokensFromABucket(t *testing.T) {
	dir := files(t)
	if err := os.WriteFile(filepath.Join(dir, "data.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	server := fakegcs.New(t)
	t.Setenv("STORAGE_EMULATOR_HOST", server.Host)
	upload(t, server, dir, "tokens/")
	server.Set("public", "tokens-2/other.ds", make([]byte, 100))
	base := serve(t, http.FileServer(http.Dir(dir)))
	o := Options{Bucket: anonymously}
	want := read(t, open4(t, o, local(dir, config.TwoBytes, seeded)), 0, 40)
	same(t, want, read(t, open4(t, o, urls(base, seeded)), 0, 40))
	p := open4(t, o, gcp("tokens", seeded))
	if p.Len() != 18 {
		t.Errorf("%d sequences, want 18", p.Len())
	}
	same(t, want, read(t, p, 0, 40))
	for i := range uint64(40) {
		same(t, want[i:i+1], read(t, p, i, i+1))
	}
}

func TestAnObjectThatIsReplaced(t *testing.T) {
	dir := files(t)
	server := fakegcs.New(t)
	t.Setenv("STORAGE_EMULATOR_HOST", server.Host)
	upload(t, server, dir, "")
	p := open4(t, Options{Bucket: anonymously}, gcp("", seeded), local(dir, config.TwoBytes, seeded))
	first := read(t, p, 0, 1)
	for _, name := range []string{"2.ds", "10.ds"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		server.Set("public", name, content)
	}
	same(t, first, read(t, p, 0, 1)) // from the folder: even the same bytes are a different version
	if p.reported != 1 {
		t.Errorf("location %d serves", p.reported)
	}
	alone := open4(t, Options{Bucket: anonymously}, gcp("", seeded))
	server.Set("public", "2.ds", make([]byte, 82))
	server.Set("public", "10.ds", make([]byte, 66))
	_, err := alone.Batch(context.Background(), assign.BatchID{End: 1})
	if !errors.Is(err, tokens.ErrChanged) || !IsPermanent(err) || !strings.Contains(err.Error(), "Http gs://public") {
		t.Errorf("got %v; want error tokens.ErrChanged and IsPermanent(err) and text with \"Http gs://public\"", err)
	}
}

func TestBucketsThatCannotBeRead(t *testing.T) {
	server := fakegcs.New(t)
	t.Setenv("STORAGE_EMULATOR_HOST", server.Host)
	server.Set("public", "x/readme.txt", nil)
	server.Set("public", "numpy/a.npy", []byte("\x93NUMPY\x01\x00v\x00{'descr"))
	// The location states two bytes.
	for _, name := range []string{"datatrove-4.ds", "datatrove-4.ds.metadata", "megatron-int32.bin", "megatron-int32.idx", "llmc-llama3.bin"} {
		content, err := os.ReadFile(filepath.Join("local", "testdata", "formats", name))
		if err != nil {
			t.Fatal(err)
		}
		server.Set("public", strings.TrimSuffix(name, filepath.Ext(name))+"/"+name, content)
	}
	server.Set("public", "datatrove-4/datatrove-4.ds.metadata", []byte("a/tokenizer|4\n129\n129 T"))
	wide := make([]byte, 4000)
	for i := 0; i < len(wide); i += 4 {
		wide[i] = byte(20 + i%200)
	}
	server.Set("public", "bare/a.bin", wide)
	letters := bytes.Repeat([]byte("a\x00\n\x00"), 2000)
	server.Set("public", "letters/a.bin", letters)
	server.Set("public", "described/a.bin", letters)
	server.Set("public", "described/a.bin.metadata", []byte("NAME|2"))
	for directory, want := range map[string]error{
		"letters": tokens.ErrWrongSize, "described": nil,
		"x": tokens.ErrNoFiles, "y": tokens.ErrNoFiles, "numpy": tokens.ErrNumpyHeader,
		"datatrove-4": tokens.ErrWrongSize, "megatron-int32": tokens.ErrWrongSize, "llmc-llama3": tokens.ErrWrongSize, "bare": tokens.ErrWrongSize,
	} {
		p, err := New(context.Background(), []config.DataLocation{gcp(directory, seeded)}, Options{SeqLen: 4, Bucket: anonymously})
		if err == nil {
			err = p.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", directory, err, want)
		}
	}
	if _, err := New(context.Background(), []config.DataLocation{gcp("x", seeded)}, Options{SeqLen: 4}); !errors.Is(err, errUnsupported) {
		t.Errorf("without a driver: %v", err)
	}
}
