package data

import (
	"context"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/web"
	"github.com/psyche-go/psyche/record/config"
)

// quick has short timeouts for tests, so that permanent errors appear soon.
var quick = web.Options{Timeout: 2 * time.Second, MaxElapsed: 3 * time.Second, Pause: time.Millisecond, Inner: true}

// write creates a token file of two-byte ids, starting with first.
func write(t testing.TB, path string, first, n int) {
	t.Helper()
	var raw []byte
	for i := range n {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(first+i))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// files creates a folder whose natural order differs from its byte order.
func files(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "2.ds"), 1000, 41)
	write(t, filepath.Join(dir, "10.ds"), 2000, 33)
	write(t, filepath.Join(dir, "heldout", "heldout.ds"), 9000, 40)
	return dir
}

func serve(t testing.TB, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// urls is the location, on a server, of the files that files creates. They are numbered 2 and 10.
func urls(base string, shuffle config.Shuffle) config.DataLocation {
	return config.DataLocation{HTTP: &config.HTTPData{
		Location:  config.HTTPLocation{URLs: []string{base + "/2.ds", base + "/10.ds"}},
		TokenSize: config.TwoBytes, Shuffle: shuffle,
	}}
}

func open4(t testing.TB, o Options, locations ...config.DataLocation) *fallback {
	t.Helper()
	o.SeqLen, o.Web = 4, quick
	p, err := New(context.Background(), locations, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.(*fallback).Close(); err != nil {
			t.Error(err)
		}
	})
	return p.(*fallback)
}

func read(t testing.TB, p *fallback, start, end uint64) [][]int32 {
	t.Helper()
	got, err := p.Batch(context.Background(), assign.BatchID{Start: start, End: end})
	if err != nil {
		t.Fatal(err)
	}
	return got.Sequences
}

func same(t testing.TB, want, got [][]int32) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
