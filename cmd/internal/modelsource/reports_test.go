package modelsource

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/files/hub/hubtest"
	"github.com/psyche-go/psyche/files/objstore/gcs/fakegcs"
	_ "github.com/psyche-go/psyche/learn/model/llama" // for its architecture
)

const smallConfig = `{"architectures":["LlamaForCausalLM"],"vocab_size":256,"hidden_size":16,"intermediate_size":32,
"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":32,"eos_token_id":0}`

// reporting is a client that examines locations that members reported.
func reporting(t *testing.T) *Source {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return &Source{dir: filepath.Join(t.TempDir(), "reports"), Options: Options{
		RunID: "run", SharedMiB: 65536, Logger: slog.New(slog.DiscardHandler),
		Hub: func(bool) (*hub.Client, error) {
			o, err := hub.FromEnvironment(os.LookupEnv)
			if err != nil {
				return nil, err
			}
			o.Parallel = 1
			return hub.New(o)
		},
	}}
}

// testModel returns the files of a model that state the given digest.
func testModel(t *testing.T, claimed func(own [32]byte) [32]byte) (files map[string][]byte, digest [32]byte) {
	t.Helper()
	snapshot, err := checkpoint.ReadDir(filepath.Join("..", "..", "..", "files", "checkpoint", "testdata", "own", "sharded"))
	if err != nil {
		t.Fatal(err)
	}
	digest = claimed(snapshot.Manifest().Digest())
	dir := filepath.Join(t.TempDir(), "model")
	facts := checkpoint.Facts{RunID: "run", Step: 3, Digest: hex.EncodeToString(digest[:])}
	if err := checkpoint.WriteDir(dir, snapshot, facts.Extra()); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files = make(map[string][]byte)
	for _, entry := range entries {
		if files[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files, digest
}

func truly(own [32]byte) [32]byte { return own }

func falsely(own [32]byte) [32]byte {
	own[0]++
	return own
}

// left lists the files below the folders in which a client keeps downloads.
func left(t *testing.T, c *Source) (found []string) {
	t.Helper()
	for _, dir := range []string{c.dir, os.Getenv("XDG_CACHE_HOME"), os.Getenv("HF_HOME")} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				found = append(found, path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// reportedPlaces are a bucket and a repository with the same files.
func reportedPlaces(t *testing.T, files map[string][]byte) []coordinator.Location {
	t.Helper()
	bucket := fakegcs.New(t)
	t.Setenv("STORAGE_EMULATOR_HOST", bucket.Host)
	for name, data := range files {
		bucket.Set("bucket", "here/"+name, data)
	}
	repos := hubtest.New()
	t.Cleanup(repos.Close)
	t.Setenv("HF_ENDPOINT", repos.URL)
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_HUB_CACHE", "")
	commit := repos.Put("org/name", files)
	return []coordinator.Location{
		{Kind: coordinator.CheckpointGcs, Repo: "bucket", Revision: "here"},
		{Kind: coordinator.CheckpointHub, Repo: "org/name", Revision: commit},
	}
}

// TestReportIsTrue checks that the client gets the model and leaves no other files.
func TestReportIsTrue(t *testing.T) {
	files, digest := testModel(t, truly)
	for _, at := range reportedPlaces(t, files) {
		c := reporting(t)
		wanted := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Digest: digest, Step: 3}
		for range 2 {
			if got, err := c.Archive(t.Context(), wanted, at); err != nil || got.Manifest().Digest() != digest {
				t.Errorf("%s: got %v; want nil error and got.Manifest().Digest() == digest", at, err)
			}
			if found := left(t, c); len(found) > 0 {
				t.Errorf("%s: left %v", at, found)
			}
		}
	}
}

// TestLocationWithAnotherModelIsNotUsedAgain checks that a location with a different model than it
// states is not used again, and that none of its files remain.
func TestLocationWithAnotherModelIsNotUsedAgain(t *testing.T) {
	files, digest := testModel(t, falsely)
	for _, at := range reportedPlaces(t, files) {
		c := reporting(t)
		wanted := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Digest: digest, Step: 3}
		if _, err := c.Archive(t.Context(), wanted, at); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%s: got %v; want error checkpoint.ErrInvalid", at, err)
		} else {
			golden.Message(t, at.Kind.String(), err)
		}
		if _, err := c.Archive(t.Context(), wanted, at); !errors.Is(err, errRefusedReport) {
			t.Errorf("%s, a second time: %v", at, err)
		}
		if found := left(t, c); len(found) > 0 {
			t.Errorf("%s: left %v", at, found)
		}
	}
}

// TestReportOfAnotherModel checks that nothing is downloaded from a location that does not state
// that it has the run's model.
func TestReportOfAnotherModel(t *testing.T) {
	files, digest := testModel(t, truly)
	for _, at := range reportedPlaces(t, files) {
		c := reporting(t)
		wanted := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Digest: falsely(digest), Step: 3}
		if _, err := c.Archive(t.Context(), wanted, at); err == nil {
			t.Errorf("%s: no error", at)
		} else {
			golden.Message(t, at.Kind.String(), err)
		}
		if found := left(t, c); len(found) > 0 {
			t.Errorf("%s: left %v", at, found)
		}
	}
}

// TestReportIsBounded checks that no more bytes are downloaded from a location than the run's model
// can have, as far as its size is known.
func TestReportIsBounded(t *testing.T) {
	bucket := fakegcs.New(t)
	t.Setenv("STORAGE_EMULATOR_HOST", bucket.Host)
	bucket.Set("bucket", "begin/config.json", []byte(smallConfig))
	bucket.Set("bucket", "large/manifest.json", fmt.Appendf(nil, `{"files":[{"filename":"model.safetensors","generation":1,"size_bytes":%d}]}`, 2<<30))
	at := coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket", Revision: "large"}
	origins := map[string]coordinator.Checkpoint{
		"too large": {Kind: coordinator.CheckpointP2PGcs, Origin: coordinator.CheckpointGcs, Repo: "bucket", Revision: "begin"},
		"no facts":  {Kind: coordinator.CheckpointP2P, Origin: coordinator.CheckpointDummy},
	}
	for name, wanted := range origins {
		_, err := reporting(t).Archive(t.Context(), wanted, at)
		golden.Message(t, name, err)
	}
	repos := hubtest.New()
	t.Cleanup(repos.Close)
	t.Setenv("HF_ENDPOINT", repos.URL)
	t.Setenv("HF_HOME", t.TempDir())
	repos.Put("org/name", map[string][]byte{"config.json": []byte(smallConfig)})
	onHub := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Origin: coordinator.CheckpointHub, Repo: "org/name"}
	if limit := reporting(t).sizeLimit(t.Context(), onHub); limit != 10800*4+1<<30 {
		t.Errorf("limit %d for a model of 10800 parameters", limit)
	}
	c := reporting(t)
	c.SharedMiB = 1
	for _, wanted := range origins {
		if limit := c.sizeLimit(t.Context(), wanted); limit != 1<<20 {
			t.Errorf("limit %d, want the size that can be shared", limit)
		}
	}
}

// TestReportIsTakenUp checks that the next download reuses the files of an interrupted download.
func TestReportIsTakenUp(t *testing.T) {
	files, digest := testModel(t, truly)
	repos := hubtest.New()
	t.Cleanup(repos.Close)
	t.Setenv("HF_ENDPOINT", repos.URL)
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_HUB_CACHE", "")
	at := coordinator.Location{Kind: coordinator.CheckpointHub, Repo: "org/name", Revision: repos.Put("org/name", files)}
	wanted := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Digest: digest, Step: 3}
	c := reporting(t)
	ctx, cancel := context.WithCancel(t.Context())
	repos.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		last := strings.HasSuffix(r.URL.Path, "/config.json")
		if last {
			cancel()
		}
		return last
	})
	if _, err := c.Archive(ctx, wanted, at); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if len(left(t, c)) == 0 {
		t.Error("the interrupted download left no file")
	}
	repos.Intercept(nil)
	if got, err := c.Archive(t.Context(), wanted, at); err != nil || got.Manifest().Digest() != digest {
		t.Errorf("resumed: %v", err)
	}
	if found := left(t, c); len(found) > 0 {
		t.Errorf("left %v", found)
	}
}

// TestReportsDir checks that each client of each run has its own folder, the same in every process.
func TestReportsDir(t *testing.T) {
	dir := func(run string, member byte) string {
		t.Helper()
		dir, err := reportsDir(run, identity.ID{member})
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if a := dir("run", 1); a != dir("run", 1) || a == dir("run", 2) || a == dir("walk", 1) {
		t.Errorf("folder %s does not belong to one client of one run", a)
	}
}
