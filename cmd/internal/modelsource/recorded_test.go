package modelsource

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/modelarchive"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// put writes files to a folder.
func put(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// damage changes the last byte of a tensor file of a folder.
func damage(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// recordedOf returns a Recorded without sources, and the wanted checkpoint.
func recordedOf(t *testing.T, digest [32]byte) (*Recorded, coordinator.Checkpoint) {
	t.Helper()
	dir := t.TempDir()
	r := &Recorded{RunID: "run", OwnDir: filepath.Join(dir, "own"), CacheDir: filepath.Join(dir, "cache"), Hub: reporting(t).Hub, Logger: slog.New(slog.DiscardHandler)}
	return r, coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Digest: digest, Step: 3}
}

// TestRecordedFromThisMachine checks that a model in the user's folder is used in place, unless it is
// damaged, and that a damaged download is replaced.
func TestRecordedFromThisMachine(t *testing.T) {
	files, digest := testModel(t, truly)
	places := reportedPlaces(t, files)[1:]
	r, wanted := recordedOf(t, digest)
	own := filepath.Join(r.OwnDir, "run-step3")
	put(t, own, files)
	if dir, err := r.Model(t.Context(), wanted, nil); err != nil || dir != own {
		t.Fatalf("%s, %v, want the user's folder", dir, err)
	}
	if dir, step, err := r.Own(t.Context()); err != nil || dir != own || step != 3 {
		t.Errorf("the newest own model: %s, step %d, %v", dir, step, err)
	}
	damage(t, own)
	if _, _, err := r.Own(t.Context()); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("a damaged own model: %v", err)
	}
	if _, err := r.Model(t.Context(), wanted, nil); !errors.Is(err, ErrNowhere) || !errors.Is(err, tcp.ErrNoModel) {
		t.Errorf("without a source: %v", err)
	}
	put(t, filepath.Join(r.CacheDir, "earlier"), files)
	reports, err := reportsDir(r.RunID, identity.ID(digest))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(reports, "of a killed process"), files)
	for _, places := range [][]coordinator.Location{places, nil} { // the second time from the cache
		dir, err := r.Model(t.Context(), wanted, places)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := checkpoint.DigestDir(t.Context(), dir, nil); err != nil || got != digest {
			t.Errorf("digest %x, %v", got, err)
		}
	}
	if kept, err := os.ReadDir(r.CacheDir); err != nil || len(kept) != 1 {
		t.Errorf("the cache has %v, %v", kept, err)
	}
	if _, err := os.Stat(reports); !os.IsNotExist(err) {
		t.Errorf("files of a killed process: %v", err)
	}
	damage(t, r.folder(digest))
	if _, err := r.Model(t.Context(), wanted, places); err != nil {
		t.Errorf("a damaged download is not replaced: %v", err)
	}
}

// TestRecordedFromTheServer checks that the server's model is used only if it has the run's digest.
func TestRecordedFromTheServer(t *testing.T) {
	files, digest := testModel(t, truly)
	dir := filepath.Join(t.TempDir(), "model")
	put(t, dir, files)
	s := servertest.Start(t, server.Options{
		Listen: "127.0.0.1:0", Runs: []server.Genesis{backendtest.Genesis("run", 3)}, WithdrawGrace: -1,
		Recorded: func(ctx context.Context, _ string, _ [32]byte) server.Model {
			archive, err := modelarchive.Open(ctx, dir, nil)
			if err != nil {
				t.Error(err)
			}
			return archive
		},
	})
	r, wanted := recordedOf(t, digest)
	r.Addr = s.Address
	got, err := r.Model(t.Context(), wanted, nil)
	if err != nil {
		t.Fatal(err)
	}
	if have, err := checkpoint.DigestDir(t.Context(), got, nil); err != nil || have != digest {
		t.Errorf("digest %x, %v", have, err)
	}
	wanted.Digest[0]++
	if _, err := r.Model(t.Context(), wanted, nil); !errors.Is(err, ErrNowhere) || !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("a server with another model: %v", err)
	}
	if _, err := os.Stat(r.folder(wanted.Digest)); !os.IsNotExist(err) {
		t.Errorf("the other model stays: %v", err)
	}
}

// TestRecordedByTwoProcesses checks that a process that wants another model waits until the download of the
// first process is complete. If it did not wait, it would remove what the first process downloads.
func TestRecordedByTwoProcesses(t *testing.T) {
	files, digest := testModel(t, truly)
	dir := filepath.Join(t.TempDir(), "model")
	put(t, dir, files)
	archive, err := modelarchive.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	asked, proceed := make(chan struct{}, 100), make(chan struct{})
	s := servertest.Start(t, server.Options{
		Listen: "127.0.0.1:0", Runs: []server.Genesis{backendtest.Genesis("run", 3)}, WithdrawGrace: -1,
		Recorded: func(context.Context, string, [32]byte) server.Model {
			asked <- struct{}{}
			<-proceed
			return archive
		},
	})
	first, wanted := recordedOf(t, digest)
	first.Addr = s.Address
	second := *first
	second.Addr = ""
	got := make(chan error, 2)
	go func() {
		dir, err := first.Model(t.Context(), wanted, nil)
		if err == nil {
			_, err = checkpoint.DigestDir(t.Context(), dir, nil)
		}
		got <- err
	}()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	other := wanted
	other.Digest[0]++
	if _, err := second.Model(ctx, other, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second process does not wait: %v", err)
	}
	go func() { // without a server: it gets the first process's download
		_, err := second.Model(t.Context(), wanted, nil)
		got <- err
	}()
	close(proceed)
	for range 2 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}
