package hub_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/files/hub/hubtest"
)

// TestDatasets: they have addresses and folders of their own, and are not written.
func TestDatasets(t *testing.T) {
	server := hubtest.New()
	defer server.Close()
	server.Put("org/set", map[string][]byte{"a/test.jsonl": []byte("{}\n"), "a/train.jsonl": []byte("{}\n")})
	cache := t.TempDir()
	client, err := hub.New(hub.Options{Endpoint: server.URL, CacheDir: cache, Datasets: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Snapshot(t.Context(), "org/set", hub.SnapshotOptions{Match: func(path string) bool { return path == "a/test.jsonl" }})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(got.Dir, "a", "test.jsonl")); err != nil || string(text) != "{}\n" || !strings.HasPrefix(got.Dir, filepath.Join(cache, "datasets--org--set")) {
		t.Errorf("%q in %s, %v", text, got.Dir, err)
	}
	for _, request := range server.Requests() {
		if !strings.HasPrefix(request, "GET /api/datasets/org/set/") && request != "GET /datasets/org/set/resolve/"+got.Commit+"/a/test.jsonl" {
			t.Errorf("asked for %s", request)
		}
	}
	_, err = client.Upload(t.Context(), "org/set", []hub.File{{Path: "a", Data: []byte("b")}}, hub.UploadOptions{})
	golden.Message(t, "upload", err)
}
