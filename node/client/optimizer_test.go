package client

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// TestRestartKeepsTheMomentum kills a client between two epochs. Its next process continues with
// the momentum that belongs to the run's checkpoint, unless the file is damaged or belongs to a
// different model.
func TestRestartKeepsTheMomentum(t *testing.T) {
	spoil := map[string]func(t *testing.T, file string){
		"whole": nil,
		"damaged": func(t *testing.T, file string) {
			if err := os.WriteFile(file, []byte("?"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"of another model": func(t *testing.T, file string) {
			if err := os.Rename(file, filepath.Join(filepath.Dir(file), "test-run-step3-"+hexOf([32]byte{})+"-00.safetensors")); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, change := range spoil {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(3))
				saved, dir := &savedFolders{}, t.TempDir()
				keep := func(o *options) { o.CheckpointDir, o.Saved = dir, saved.add }
				a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, keep)
				w.until("between epochs", func(s *coordinator.State) bool {
					return s.RunState == coordinator.WaitingForMembers && s.Progress.Epoch == 1 && saved.count() > 0
				})
				c.crash()
				state := w.host.State()
				file := c.node.folder().Optimizer(state.Model.Checkpoint.Step, state.Model.Checkpoint.Digest)
				if _, err := os.Stat(file); err != nil {
					t.Fatal(err)
				}
				want := uint64(3) // one for each of its results
				if change != nil {
					change(t, file)
					want = 0
				}
				again := w.launch(2, keep)
				w.until("it is ready", func(*coordinator.State) bool { return len(all[event.Ready](again)) > 0 })
				if got := again.trainer.Momentum(); got != want {
					t.Errorf("momentum %d, want %d", got, want)
				}
				finishEqual(w, a, b, again)
				left, err := os.ReadDir(filepath.Dir(file))
				if err != nil || len(left) > 3 { // two are kept, and the renamed one
					t.Errorf("%d files are left, %v", len(left), err)
				}
			})
		})
	}
}

// TestMomentumIsWrittenBesideTheNextEpoch checks a disk that takes several epochs to write. No
// epoch waits for it, and the last epoch writes no momentum, because it is not needed any more.
func TestMomentumIsWrittenBesideTheNextEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		dir := t.TempDir()
		a := w.launch(0, nil)
		b := w.launch(1, func(o *options) { o.CheckpointDir, o.trainer.Writing = dir, 4*time.Second })
		w.until("the next epoch runs", func(s *coordinator.State) bool {
			return s.Progress.Epoch == 1 && s.RunState == coordinator.RoundTrain
		})
		isThere := func() bool {
			files, err := filepath.Glob(filepath.Join(dir, ".optimizer", "*"))
			if err != nil {
				t.Fatal(err)
			}
			return len(files) > 0
		}
		if isThere() {
			t.Error("the epoch waited for the disk")
		}
		w.until("it is on the disk", func(*coordinator.State) bool { return isThere() })
		finishEqual(w, a, b)
		last := w.host.State().Model.Checkpoint
		if _, err := os.Stat(b.node.folder().Optimizer(last.Step, last.Digest)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the momentum after the last step was written: %v", err)
		}
	})
}

// TestInterruptWaitsForTheMomentum checks that an interrupted client waits for its momentum to be
// written, for as long as a slow disk needs for its size. A disk that only has much to write is not
// reported as hung.
func TestInterruptWaitsForTheMomentum(t *testing.T) {
	for name, test := range map[string]struct {
		bytes int
		waits bool
	}{
		"a large one":  {1000 << 20, true},
		"a small one":  {1 << 10, false},
		"a larger one": {4 << 30, true}, // the next epoch waits for it
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(2))
				dir, hangs := t.TempDir(), false
				a := w.launch(0, nil)
				b := w.launch(1, func(o *options) {
					o.CheckpointDir, o.trainer.Writing, o.trainer.Heavy = dir, 15*time.Second, test.bytes
					o.DiskHangs = func() { hangs = true }
				})
				w.until("an epoch is over", func(s *coordinator.State) bool { return s.Progress.Epoch == 1 })
				time.Sleep(time.Second)
				b.cancel()
				b.wait()
				if hangs == test.waits {
					t.Errorf("hung disk reported: %v", hangs)
				}
				files, err := filepath.Glob(filepath.Join(dir, ".optimizer", "*"+".safetensors"))
				if err != nil || len(files) > 0 != test.waits {
					t.Errorf("the momentum is on the disk: %q, %v", files, err)
				}
				if !test.waits {
					time.Sleep(15 * time.Second) // the goroutine that writes it
				}
				a.crash()
			})
		})
	}
}

// TestColdStartForgetsTheKeptMomentum checks that a client does not use its saved momentum in an epoch
// with a cold start. No other client resumes the run.
func TestColdStartForgetsTheKeptMomentum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(1))
		saved, dir := &savedFolders{}, t.TempDir()
		keep := func(o *options) { o.CheckpointDir, o.Saved = dir, saved.add }
		a := w.launch(0, keep)
		w.until("an epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 1 && saved.count() > 0 })
		a.crash()
		again := w.launch(0, keep)
		w.until("it is ready", func(*coordinator.State) bool { return len(all[event.Ready](again)) > 0 })
		if s := w.host.State(); !s.Epoch.ColdStart {
			t.Error("all optimizers are young, and the epoch is not cold")
		}
		if got := again.trainer.Momentum(); got != 0 {
			t.Errorf("momentum %d in a cold start", got)
		}
		finishEqual(w, again)
	})
}
