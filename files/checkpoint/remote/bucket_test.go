package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/objstore"
	"github.com/psyche-go/psyche/files/objstore/gcs"
	"github.com/psyche-go/psyche/files/objstore/gcs/fakegcs"
)

func newBucket(t *testing.T) Bucket {
	t.Helper()
	t.Setenv("STORAGE_EMULATOR_HOST", fakegcs.New(t).Host)
	store, err := gcs.Open(t.Context(), "bucket", gcs.Options{Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return Bucket{Store: store, Name: "bucket", Prefix: "runs", CacheDir: t.TempDir()}
}

// checkSnapshot compares the files of a folder with the uploaded files.
func checkSnapshot(t *testing.T, dir string, want checkpoint.Snapshot) {
	t.Helper()
	got, err := checkpoint.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestBucket uploads two steps and downloads both, bit for bit.
func TestBucket(t *testing.T) {
	b, parent := newBucket(t), t.TempDir()
	for _, step := range []uint32{10, 20} {
		folder, want, facts := save(t, parent, step)
		if err := os.WriteFile(filepath.Join(folder, "optimizer.safetensors"), []byte("private"), 0o600); err != nil {
			t.Fatal(err)
		}
		var sent, all int64
		at, err := b.Upload(t.Context(), folder, facts, func(done, total int64) { sent, all = done, total })
		if err != nil || at != "runs/"+filepath.Base(folder) || sent != all || all == 0 {
			t.Fatalf("at %q, %d of %d bytes, %v", at, sent, all, err)
		}
		if again, err := b.Upload(t.Context(), folder, facts, func(int64, int64) { t.Error("uploads it again") }); err != nil || again != at {
			t.Errorf("again at %q, %v", again, err)
		}
		place := b
		place.Prefix = at
		if got, err := place.Facts(t.Context()); err != nil || got != facts {
			t.Errorf("facts %+v, %v", got, err)
		}
		config, _ := want.File(checkpoint.ConfigFile)
		if got, err := place.Config(t.Context()); err != nil || string(got) != string(config) {
			t.Errorf("config %s, %v", got, err)
		}
		got, err := place.Download(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := place.Download(t.Context(), func(int64, int64) { t.Error("downloads it again") }); err != nil || second != got {
			t.Errorf("second download: %q, %v", second, err)
		}
		checkSnapshot(t, got, want)
		if _, err := os.Stat(filepath.Join(got, "optimizer.safetensors")); err == nil {
			t.Error("the optimizer was uploaded")
		}
	}
}

// writeOrder records the order of writes, and can fail.
type writeOrder struct {
	objstore.Store
	fail func(name string) error

	mu    sync.Mutex
	names []string
}

func (w *writeOrder) Put(ctx context.Context, name string, content io.Reader, size int64, when objstore.Condition) (objstore.Object, error) {
	if w.fail != nil {
		if err := w.fail(path.Base(name)); err != nil {
			return objstore.Object{}, err
		}
	}
	w.mu.Lock()
	w.names = append(w.names, path.Base(name))
	w.mu.Unlock()
	return w.Store.Put(ctx, name, content, size, when)
}

// TestBucketUploadIsAtomic interrupts an upload. The next upload completes it, sends
// nothing twice without need, and replaces files with different content.
func TestBucketUploadIsAtomic(t *testing.T) {
	b, parent := newBucket(t), t.TempDir()
	folder, _, facts := save(t, parent, 10)
	broken := errors.New("broken")
	order := &writeOrder{Store: b.Store, fail: func(name string) error {
		if name == manifestObject {
			return broken
		}
		return nil
	}}
	failing := b
	failing.Store = order
	if _, err := failing.Upload(t.Context(), folder, facts, nil); !errors.Is(err, broken) {
		t.Fatalf("got %v; want error %v", err, broken)
	}
	at := b.Folder("run", 10)
	if done, err := at.isThere(t.Context(), facts); done || err != nil {
		t.Errorf("found half an upload: %t, %v", done, err)
	}
	wrong := bytes.Repeat([]byte("x"), 7)
	old, err := b.Store.Put(t.Context(), at.Prefix+"/config.json", bytes.NewReader(wrong), 7, objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	order.fail, order.names = nil, nil
	if _, err := failing.Upload(t.Context(), folder, facts, nil); err != nil {
		t.Fatal(err)
	}
	if last := order.names[len(order.names)-1]; last != manifestObject {
		t.Errorf("%s was written last", last)
	}
	files, err := at.files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(files, func(f bucketFile) bool { return f.Name == "config.json" })
	if string(files[i].Generation) == old.Generation {
		t.Error("a file with other content was accepted as the checkpoint's")
	}
}

// TestBucketPinsVersions checks that a checkpoint with a changed object is refused and not mixed.
func TestBucketPinsVersions(t *testing.T) {
	b, parent := newBucket(t), t.TempDir()
	folder, _, facts := save(t, parent, 10)
	at, err := b.Upload(t.Context(), folder, facts, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Store.Put(t.Context(), at+"/config.json", strings.NewReader("{}"), 2, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	b.Prefix = at
	if _, err := b.Download(t.Context(), nil); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("got %v, want ErrChanged", err)
	}
	left, err := os.ReadDir(filepath.Join(b.CacheDir, "bucket"))
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestBucketRepairsIncompleteDownloads removes content of downloaded files, as a power failure can.
func TestBucketRepairsIncompleteDownloads(t *testing.T) {
	b := newBucket(t)
	folder, want, facts := save(t, t.TempDir(), 10)
	if _, err := b.Upload(t.Context(), folder, facts, nil); err != nil {
		t.Fatal(err)
	}
	b = b.Folder("run", 10)
	whole, err := b.Download(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(whole, "model.safetensors")
	for name, lose := range map[string]func() error{
		"empty":    func() error { return os.Truncate(weights, 0) },
		"short":    func() error { return os.Truncate(weights, 20) },
		"missing":  func() error { return os.Remove(weights) },
		"a folder": func() error { return errors.Join(os.Remove(weights), os.Mkdir(weights, 0o777)) },
		"all":      func() error { return errors.Join(os.RemoveAll(whole), os.Mkdir(whole, 0o777)) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := lose(); err != nil {
				t.Fatal(err)
			}
			got, err := b.Download(t.Context(), nil)
			if err != nil || got != whole {
				t.Fatalf("got %s, %v; want nil error and %s", got, err, whole)
			}
			checkSnapshot(t, got, want)
			if left, err := os.ReadDir(filepath.Dir(whole)); err != nil || len(left) != 1 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}

// gate is a store that returns nothing until it is opened.
type gate struct {
	objstore.Store
	once  sync.Once
	asked chan struct{} // closed when a reader waits
	open  chan struct{}
}

func (g *gate) Open(ctx context.Context, o objstore.Object) (io.ReadCloser, error) {
	g.once.Do(func() { close(g.asked) })
	select {
	case <-g.open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return g.Store.Open(ctx, o)
}

// TestBucketRemovesAbandonedDownloads checks that files of killed processes are removed, but
// neither a download in progress nor files that are not downloads.
func TestBucketRemovesAbandonedDownloads(t *testing.T) {
	b := newBucket(t)
	for _, step := range []uint32{10, 20} {
		folder, _, facts := save(t, t.TempDir(), step)
		if _, err := b.Upload(t.Context(), folder, facts, nil); err != nil {
			t.Fatal(err)
		}
	}
	slow := &gate{Store: b.Store, asked: make(chan struct{}), open: make(chan struct{})}
	waiting := b.Folder("run", 10)
	waiting.Store = slow
	ended := make(chan error, 1)
	go func() {
		_, err := waiting.Download(t.Context(), nil)
		ended <- err
	}()
	<-slow.asked
	cache, suffix := filepath.Join(b.CacheDir, "bucket"), "."+strings.Repeat("A", 26)
	abandoned := filepath.Join(cache, "."+strings.Repeat("0", 32)+suffix)
	kept := filepath.Join(cache, ".mine"+suffix)
	for _, folder := range []string{abandoned, kept} {
		if err := errors.Join(os.Mkdir(folder, 0o777), os.WriteFile(filepath.Join(folder, "model.safetensors"), []byte("half"), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second download finds all files there
		if _, err := b.Folder("run", 20).Download(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(cache); err != nil || len(left) != 3 {
			t.Errorf("left %v, %v; want a finished download, an active download, and an unrelated folder", left, err)
		}
		if _, err := os.Stat(abandoned); err == nil {
			t.Error("files of a killed process still exist")
		}
		if err := os.Mkdir(abandoned, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	close(slow.open)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestBucketKeepsFilesOfAFasterDownload checks that a download that finds the same files at its
// end leaves them, so that their readers are not disturbed.
func TestBucketKeepsFilesOfAFasterDownload(t *testing.T) {
	b := newBucket(t)
	folder, _, facts := save(t, t.TempDir(), 10)
	if _, err := b.Upload(t.Context(), folder, facts, nil); err != nil {
		t.Fatal(err)
	}
	b = b.Folder("run", 10)
	slow := &gate{Store: b.Store, asked: make(chan struct{}), open: make(chan struct{})}
	waiting := b
	waiting.Store = slow
	ended := make(chan error, 1)
	go func() {
		_, err := waiting.Download(t.Context(), nil)
		ended <- err
	}()
	<-slow.asked
	dir, err := b.Download(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	close(slow.open)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if after, err := os.Stat(dir); err != nil || !os.SameFile(before, after) {
		t.Errorf("the folder was replaced, or lost: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestBucketKeepsAnotherCheckpoint(t *testing.T) {
	b, parent := newBucket(t), t.TempDir()
	folder, _, facts := save(t, parent, 10)
	if _, err := b.Upload(t.Context(), folder, facts, nil); err != nil {
		t.Fatal(err)
	}
	facts.Digest = strings.Repeat("0", 64)
	if _, err := b.Upload(t.Context(), folder, facts, nil); !errors.Is(err, errOtherCheckpoint) || !isFinal(err) {
		t.Errorf("got %v; want error errOtherCheckpoint and isFinal(err)", err)
	}
}

// TestTwoUploadAtOnce checks that both uploads succeed and that the result is complete.
func TestTwoUploadAtOnce(t *testing.T) {
	b, parent := newBucket(t), t.TempDir()
	folder, _, facts := save(t, parent, 10)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := b.Upload(t.Context(), folder, facts, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, err := b.Folder("run", 10).Download(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestBucketWithoutManifest reads a model that a user copied to a bucket.
func TestBucketWithoutManifest(t *testing.T) {
	b, parent := newBucket(t), t.TempDir()
	if _, err := b.Download(t.Context(), nil); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("nothing there: %v", err)
	}
	folder, want, _ := save(t, parent, 10)
	for _, name := range []string{"config.json", "model.safetensors"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Store.Put(t.Context(), "runs/"+name, bytes.NewReader(content), int64(len(content)), objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Facts(t.Context()); !errors.Is(err, checkpoint.ErrNoFacts) {
		t.Errorf("facts: %v", err)
	}
	got, err := b.Download(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if snapshot, err := checkpoint.ReadDir(got); err != nil || snapshot.Manifest().Digest() != want.Manifest().Digest() {
		t.Errorf("a different model, %v", err)
	}
}

func TestBucketKeepsToItsLimit(t *testing.T) {
	b := newBucket(t)
	folder, _, facts := save(t, t.TempDir(), 10)
	if _, err := b.Upload(t.Context(), folder, facts, nil); err != nil {
		t.Fatal(err)
	}
	b = b.Folder("run", 10)
	b.MaxBytes = 100
	if _, err := b.Download(t.Context(), nil); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("got %v; want error checkpoint.ErrInvalid", err)
	}
}

// TestHostileManifests checks that each manifest is refused before anything is downloaded.
func TestHostileManifests(t *testing.T) {
	tests := map[string]string{
		"no JSON":        `{`,
		"other names":    `{"files":[{"filename":"../config.json","generation":1,"size_bytes":2}]}`,
		"too large":      `{"files":[{"filename":"config.json","generation":1,"size_bytes":9223372036854775807}]}`,
		"negative":       `{"files":[{"filename":"config.json","generation":1,"size_bytes":-1}]}`,
		"twice":          `{"files":[{"filename":"config.json","generation":1,"size_bytes":2},{"filename":"config.json","generation":1,"size_bytes":2}]}`,
		"no generation":  `{"files":[{"filename":"config.json","generation":{},"size_bytes":2}]}`,
		"too many files": `{"files":[` + strings.TrimSuffix(strings.Repeat(`{},`, maxBucketFiles+1), ",") + `]}`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBucket(t)
			if _, err := b.Store.Put(t.Context(), "runs/"+manifestObject, strings.NewReader(text), int64(len(text)), objstore.Condition{}); err != nil {
				t.Fatal(err)
			}
			_, err := b.Download(t.Context(), nil)
			if !errors.Is(err, checkpoint.ErrInvalid) && !errors.Is(err, objstore.ErrNotFound) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// FuzzManifest reads folders of a bucket with an arbitrary manifest.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"files":[{"name":"config.json","size":2,"generation":5}]}`))
	f.Add([]byte(`{"files":[{"name":"config.json","size":2,"generation":"x"},{"name":"config.json","size":-2}]}`))
	f.Add([]byte(`{}`))
	fuzztest.Run(f, func(t *testing.T, text []byte) {
		b := newBucket(t)
		o := objstore.Object{Name: path.Join(b.Prefix, manifestObject), Size: int64(len(text))}
		if _, err := b.Store.Put(t.Context(), o.Name, bytes.NewReader(text), o.Size, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
		files, err := b.files(t.Context())
		if err != nil {
			if !errors.Is(err, checkpoint.ErrInvalid) && !errors.Is(err, objstore.ErrNotFound) {
				t.Fatalf("error %v", err)
			}
			return
		}
		var total int64
		for _, file := range files {
			if total += file.Size; file.Size < 0 || total > maxBucketBytes || !checkpoint.IsPart(file.Name) {
				t.Errorf("lists %+v", file)
			}
		}
	})
}

// TestNoSpaceForABucket checks that a checkpoint that does not fit is refused before its first
// file. A second download needs no additional space.
func TestNoSpaceForABucket(t *testing.T) {
	b := newBucket(t)
	folder, _, facts := save(t, t.TempDir(), 10)
	at, err := b.Upload(t.Context(), folder, facts, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Prefix = at
	free := uint64(0)
	b.Space = func(string) diskspace.Space { return diskspace.Bytes(free) }
	if _, err := b.Download(t.Context(), nil); !errors.Is(err, diskspace.ErrTooLittle) || !strings.Contains(err.Error(), b.CacheDir) {
		t.Error(err)
	}
	free = 1 << 20
	if _, err := b.Download(t.Context(), nil); err != nil {
		t.Error(err)
	}
	free = 0
	if _, err := b.Download(t.Context(), nil); err != nil {
		t.Errorf("once more: %v", err)
	}
}
