package client

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/models"
)

// TestIntermediateCheckpointIsWrittenFromMemory checks that an intermediate checkpoint is written
// directly from the trainer's memory, without a copy. The run agrees on it as on the copies of
// other members. If the disk fails, one is skipped and reported, and later ones are copied.
func TestIntermediateCheckpointIsWrittenFromMemory(t *testing.T) {
	for _, bad := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := longEpoch(t, "3")
			f := keep.Folder{Dir: filepath.Join(w.dir, "disk"), RunID: clienttest.RunID}
			if bad { // a foreign folder is at the path of the first one
				if err := os.MkdirAll(filepath.Join(f.Intermediate(3), "mine"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			var log journal
			lends := w.launch(0, func(o *options) {
				filed(o)
				o.CheckpointDir = f.Dir
				o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			})
			others := []*member{w.launch(1, nil), w.launch(2, nil)}
			w.until("two intermediate checkpoints", func(s *coordinator.State) bool {
				_, err := f.FindIntermediate(s.Epoch.Commit.Step, s.Epoch.Commit.Digest)
				return s.Epoch.Commit.Step >= 6 && err == nil
			})
			s := w.host.State()
			if reportOf(&s, lends) < 6 {
				t.Errorf("in step %d its newest report is about step %d", s.Progress.Step, reportOf(&s, lends))
			}
			wrote, copied, leftOut := len(log.lines("copied=false")), len(log.lines("copied=true")), len(log.lines("level=WARN", "step=", "err="))
			if bad != (copied > 0) || bad != (leftOut > 0) || bad == (wrote > 0) {
				t.Errorf("bad disk: %v; %d were written directly, %d copied, %d skipped", bad, wrote, copied, leftOut)
			}
			finishEqual(w, append(others, lends)...)
			checkNobodyAccused(t, w, append(others, lends))
		})
	}
}

// TestLeavingAwaitsALentCheckpoint checks that a leaving client waits for a large intermediate
// checkpoint that is being written, for a time in proportion to its size, as it does for a copied
// one.
func TestLeavingAwaitsALentCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := &env.Tasks{}
		own := newGoroutines(tasks)
		tasks.Runtime = own
		var cancel context.CancelFunc
		tasks.Work, cancel = context.WithCancel(t.Context())
		held, log := &modelStates{}, slog.New(slog.DiscardHandler)
		held.copies = intermediates{
			Copies: models.Copies{Folder: true, Model: 20 * core.SlowHash},
			tasks:  tasks, jobs: &core.Jobs{}, folder: keep.Folder{Dir: t.TempDir(), RunID: clienttest.RunID}, log: log,
		}
		taking := held.copies.begin(&coordinator.State{Epoch: coordinator.Epoch{StartStep: 1}}, &clienttest.Trainer{}, 1)
		var l core.Leave
		l.Begin(time.Now(), 5*time.Second)
		waits := func() bool {
			_, stays := l.Extend(time.Now(), false, !held.copies.Finished(), held.copies.Bytes)
			return stays
		}
		if time.Sleep(20*time.Second - time.Nanosecond); !waits() {
			t.Error("the client leaves before a model that takes 20 s can be on the disk")
		}
		if time.Sleep(time.Nanosecond); waits() {
			t.Error("the client waits too long")
		}
		end := &shutdown{own: own, copies: &held.copies.Copies, saver: &keep.Saver{}}
		if _, bytes := end.unwritten(); bytes != 20*core.SlowHash {
			t.Errorf("%d bytes are being written, want %d", bytes, 20*core.SlowHash)
		}
		cancel()
		taking.abandon()
		own.tasks.Wait()
	})
}
