package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/files/hub/hubtest"
	"github.com/psyche-go/psyche/files/safetensors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// save writes a checkpoint of a step and returns its folder.
func save(t *testing.T, parent string, step uint32) (string, checkpoint.Snapshot, checkpoint.Facts) {
	t.Helper()
	return saveOf(t, "run", parent, step)
}

func saveOf(t *testing.T, runID, parent string, step uint32) (string, checkpoint.Snapshot, checkpoint.Facts) {
	t.Helper()
	s := checkpoint.Snapshot{
		Step:    step,
		Files:   []checkpoint.File{{Name: "config.json", Data: []byte(`{"architectures":["LlamaForCausalLM"]}`)}},
		Tensors: []safetensors.Tensor{safetensors.FromFloat32s("w", []int64{2}, []float32{float32(step), 1})},
	}
	f := checkpoint.Facts{RunID: runID, Epoch: step / 10, Step: step, DataIndex: uint64(step) * 8, MaxSeqLen: 16, Digest: fmt.Sprintf("%x", s.Manifest().Digest())}
	dir := filepath.Join(parent, folderName(runID, step))
	if err := checkpoint.WriteDir(dir, s, f.Extra()); err != nil {
		t.Fatal(err)
	}
	return dir, s, f
}

func newRepo(t *testing.T) (*hubtest.Server, HubRepo) {
	s := hubtest.New()
	t.Cleanup(s.Close)
	s.Tokens["hf_write"] = true
	c, err := hub.New(hub.Options{Endpoint: s.URL, Token: "hf_write", CacheDir: t.TempDir(), Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return s, HubRepo{Client: c, Repo: "org/run"}
}

// TestHubRepo uploads two steps and downloads the second step, bit for bit.
func TestHubRepo(t *testing.T) {
	server, place := newRepo(t)
	parent := t.TempDir()
	if _, _, err := place.Facts(t.Context()); !errors.Is(err, hub.ErrNotFound) {
		t.Errorf("error = %v, want ErrNotFound", err)
	}
	server.Put("org/run", map[string][]byte{"LICENSE": []byte("mine"), "model-00001-of-00002.safetensors": []byte("old"), "optimizer.safetensors": []byte("?")})
	if _, _, err := place.Facts(t.Context()); !errors.Is(err, checkpoint.ErrNoFacts) {
		t.Errorf("error = %v, want ErrNoFacts", err)
	}
	var facts checkpoint.Facts
	var want checkpoint.Snapshot
	for _, step := range []uint32{10, 20} {
		var dir string
		dir, want, facts = save(t, parent, step)
		if err := os.WriteFile(filepath.Join(dir, "optimizer.safetensors"), []byte("private"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := place.Upload(t.Context(), dir, facts, nil); err != nil {
			t.Fatal(err)
		}
	}
	files := server.Files("org/run", "main")
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{".gitattributes", "LICENSE", "README.md", "config.json", "model.safetensors", "optimizer.safetensors", "psyche.json"}, names); diff != "" {
		t.Error(diff)
	}
	if string(files["optimizer.safetensors"]) != "?" || !strings.Contains(string(files["README.md"]), "| Rounds | 20 |") {
		t.Errorf("optimizer %q, card %s", files["optimizer.safetensors"], files["README.md"])
	}
	got, pinned, err := place.Facts(t.Context())
	head, message := server.Head("org/run", "main")
	if err != nil || got != facts || pinned.Revision != head || message != "step 20" {
		t.Errorf("facts %+v at %s, %v; head %s %q", got, pinned.Revision, err, head, message)
	}
	dir, err := pinned.Download(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, dir, want)
}

func TestHubRepoKeepsNewerFilesAndUserFiles(t *testing.T) {
	server, place := newRepo(t)
	parent := t.TempDir()
	later, _, laterFacts := save(t, parent, 20)
	earlier, _, earlierFacts := save(t, parent, 10)
	if _, err := place.Upload(t.Context(), later, laterFacts, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := place.Upload(t.Context(), earlier, earlierFacts, nil); !errors.Is(err, errNewer) {
		t.Errorf("error = %v, want errNewer", err)
	}
	server.Put("org/run", map[string][]byte{"README.md": []byte("# my own")})
	again, _, facts := save(t, parent, 30)
	if _, err := place.Upload(t.Context(), again, facts, nil); err != nil {
		t.Fatal(err)
	}
	if got := string(server.Files("org/run", "main")["README.md"]); got != "# my own" {
		t.Errorf("README.md is now %q", got)
	}
}

// fakeDestination is a location that fails a given number of times, and takes a given time.
type fakeDestination struct {
	name  string
	takes time.Duration
	fails []error

	size int64

	mu     sync.Mutex
	stored []uint32
	tries  int
}

func (p *fakeDestination) String() string { return "fake " + p.name }

func (p *fakeDestination) Upload(ctx context.Context, dir string, f checkpoint.Facts, progress Progress) (string, error) {
	for done := int64(0); done <= p.size; done++ {
		progress(done, p.size)
	}
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(p.takes):
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := checkpoint.ReadDir(dir); err != nil {
		return "", err
	}
	if p.tries++; p.tries <= len(p.fails) {
		return "", p.fails[p.tries-1]
	}
	p.stored = append(p.stored, f.Step)
	return "v", nil
}

func (p *fakeDestination) wantStored(t *testing.T, want ...uint32) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.stored, want) {
		t.Errorf("stored %v, want %v", p.stored, want)
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func wantNoStage(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, stagePrefix+"*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestUploaderWaitsForTheLast checks that Close waits, that the newest checkpoint is uploaded at
// the end, and that a checkpoint in between is skipped. Folders may be pruned as soon as they are
// offered.
func TestUploaderWaitsForTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		place := &fakeDestination{takes: time.Minute}
		u := NewUploader(place, "run", dir, discard(), nil)
		for _, step := range []uint32{10, 20, 30} {
			folder, _, f := save(t, dir, step)
			u.Offer(folder, f)
			u.Offer(folder, f)
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if !u.Pending() {
			t.Error("nothing is pending")
		}
		if err := u.Close(t.Context()); err != nil {
			t.Error(err)
		}
		place.wantStored(t, 10, 30)
		wantNoStage(t, dir)
	})
}

// TestUploaderTellsHowFarItIs checks that the progress is reported from nothing to everything, in
// at most as many parts as a display can show.
func TestUploaderTellsHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		u := NewUploader(&fakeDestination{size: 1000}, "run", dir, discard(), nil)
		var got []int64
		u.Watch(func(step uint32, done, all int64) {
			if step != 10 || all != 1000 {
				t.Errorf("step %d, %d of %d", step, done, all)
			}
			got = append(got, done)
		})
		folder, _, f := save(t, dir, 10)
		u.Offer(folder, f)
		if err := u.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if len(got) != 51 || got[0] != 0 || got[50] != 1000 || !slices.IsSorted(got) {
			t.Errorf("got %v; want len(got) == 51 and got[0] == 0 and got[50] == 1000 and slices.IsSorted(got)", got)
		}
	})
}

func TestUploaderTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		broken := errors.New("broken")
		place := &fakeDestination{fails: []error{broken, broken, broken}}
		u := NewUploader(place, "run", dir, discard(), nil)
		folder, _, f := save(t, dir, 10)
		u.Offer(folder, f)
		if err := u.Close(t.Context()); err != nil {
			t.Error(err)
		}
		place.wantStored(t, 10)
	})
}

// TestUploaderPausesBeforeItTriesAgain also covers a checkpoint that existed before the uploader
// started.
func TestUploaderPausesBeforeItTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		interrupted := NewUploader(&fakeDestination{takes: time.Hour}, "run", dir, discard(), nil)
		folder, _, f := save(t, dir, 10)
		interrupted.Offer(folder, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := interrupted.Close(ctx); err == nil {
			t.Fatal("the upload was not interrupted")
		}
		place := &fakeDestination{fails: []error{errors.New("broken")}}
		u := NewUploader(place, "run", dir, discard(), nil)
		synctest.Wait()
		place.wantStored(t)
		time.Sleep(2 * retryPause)
		place.wantStored(t, 10)
		if err := u.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestUploaderReportsLostCheckpoints covers errors that a retry cannot fix, and a later checkpoint
// after such an error.
func TestUploaderReportsLostCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		place := &fakeDestination{fails: []error{hub.ErrForbidden}}
		u := NewUploader(place, "run", dir, discard(), nil)
		folder, _, f := save(t, dir, 10)
		u.Offer(folder, f)
		err := u.Close(t.Context())
		if !errors.Is(err, hub.ErrForbidden) {
			t.Errorf("error = %v", err)
		}
		golden.Message(t, "step 10", err)
		place.wantStored(t)
	})
}

// TestUploaderGivesUpAndIsTakenUp stops an uploader early and checks that the next uploader
// completes the upload.
func TestUploaderGivesUpAndIsTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		place := &fakeDestination{takes: time.Hour}
		u := NewUploader(place, "run", dir, discard(), nil)
		for _, step := range []uint32{10, 20} {
			folder, _, f := save(t, dir, step)
			u.Offer(folder, f)
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := u.Close(ctx); err == nil {
			t.Error("gave up without saying so")
		}
		if err := os.Mkdir(u.stage(30), 0o777); err != nil { // no uploader has completed it
			t.Fatal(err)
		}
		next := &fakeDestination{}
		if err := NewUploader(next, "run", dir, discard(), nil).Close(t.Context()); err != nil {
			t.Error(err)
		}
		next.wantStored(t, 20)
		wantNoStage(t, dir)
	})
}

// TestUploaderKeepsFilesOfOtherUploaders interrupts an upload, and starts a different run, or a
// different location for the same run, with the same folder. No uploader publishes or removes files
// of the other uploader, whichever step is later.
func TestUploaderKeepsFilesOfOtherUploaders(t *testing.T) {
	_, repo := newRepo(t)
	private, public := repo, repo
	private.Private = true
	elsewhere, err := hub.New(hub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	other := HubRepo{Client: elsewhere, Repo: repo.Repo}
	tests := map[string]struct {
		run, nextRun     string
		place, nextPlace string
	}{
		"of another run":         {"run", "other", private.String(), private.String()},
		"of a run named like it": {"a/b", "a_b", private.String(), private.String()},
		"for other readers":      {"run", "run", private.String(), public.String()},
		"for another Hub":        {"run", "run", public.String(), other.String()},
		"for another bucket":     {"run", "run", Bucket{Name: "a", Prefix: "b"}.String(), Bucket{Name: "a"}.String()},
		"of another run and Hub": {"run", "other", private.String(), other.String()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				interrupted := NewUploader(&fakeDestination{name: test.place, takes: time.Hour}, test.run, dir, discard(), nil)
				folder, _, f := saveOf(t, test.run, dir, 30)
				interrupted.Offer(folder, f)
				if err := os.RemoveAll(folder); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := interrupted.Close(ctx); err == nil {
					t.Fatal("the upload was not interrupted")
				}
				var log strings.Builder
				next := &fakeDestination{name: test.nextPlace}
				u := NewUploader(next, test.nextRun, dir, slog.New(slog.NewTextHandler(&log, nil)), nil)
				synctest.Wait()
				next.wantStored(t)
				if u.Pending() {
					t.Error("waits for a checkpoint that is not uploaded")
				}
				for _, step := range []uint32{10, 30} { // the last checkpoint has the same name as the remaining checkpoint
					folder, _, f := saveOf(t, test.nextRun, dir, step)
					u.Offer(folder, f)
					synctest.Wait()
				}
				if err := u.Close(t.Context()); err != nil {
					t.Error(err)
				}
				next.wantStored(t, 10, 30)
				if !strings.Contains(log.String(), "level=WARN") {
					t.Errorf("log without the remaining folder: %s", &log)
				}
				again := &fakeDestination{name: test.place}
				if err := NewUploader(again, test.run, dir, discard(), nil).Close(t.Context()); err != nil {
					t.Error(err)
				}
				again.wantStored(t, 30)
				wantNoStage(t, dir)
			})
		})
	}
}

// TestUploaderRefusesAnotherRun checks that an uploader does not publish a checkpoint of a
// different run.
func TestUploaderRefusesAnotherRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		place := &fakeDestination{}
		u := NewUploader(place, "run", dir, discard(), nil)
		folder, _, f := saveOf(t, "other", dir, 10)
		u.Offer(folder, f)
		golden.Message(t, "run other", u.Close(t.Context()))
		place.wantStored(t)
	})
}

// TestUploaderDropsAFailingUploadForALaterOne checks that a later checkpoint does not wait for the
// end of the pause.
func TestUploaderDropsAFailingUploadForALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		place := &fakeDestination{fails: []error{errors.New("broken")}}
		u := NewUploader(place, "run", dir, discard(), nil)
		for _, step := range []uint32{10, 20} {
			folder, _, f := save(t, dir, step)
			u.Offer(folder, f)
			synctest.Wait()
		}
		place.wantStored(t, 20)
		if err := u.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
