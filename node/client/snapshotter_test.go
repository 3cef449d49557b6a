package client

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/keep"
)

// TestModelsOfEpochsArePutDown checks that the model at the end of an epoch is written directly to
// the disk, and equals the copies of other members. If the disk fails, this member copies that
// model and later ones in memory, and nothing else changes.
func TestModelsOfEpochsArePutDown(t *testing.T) {
	for _, bad := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			config := epochs(3)
			w := newWorld(t, config, []byte(everyThird)...)
			f := keep.Folder{Dir: filepath.Join(w.dir, "disk"), RunID: clienttest.RunID}
			if bad { // a foreign folder is at the path of the first model
				if err := os.MkdirAll(filepath.Join(f.Checkpoint(12)+".pending", "mine"), 0o700); err != nil {
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
			w.until("two epochs", func(s *coordinator.State) bool {
				_, err := checkpoint.ReadFacts(f.Checkpoint(s.Model.Checkpoint.Step))
				return s.Progress.Epoch >= 2 && err == nil
			})
			if put, copied := len(log.lines("level=DEBUG", "dir=", "seconds=")), len(log.lines("level=WARN", "dir=", "err=")); bad != (copied == 1) || bad == (put > 1) {
				t.Errorf("bad disk: %v; %d models written, %d reports of copies", bad, put, copied)
			}
			finishEqual(w, append(others, lends)...)
			checkNobodyAccused(t, w, append(others, lends))
		})
	}
}

// TestFailedWriteOfAModel checks that neither part of a failed write of an epoch's model has a
// result: not its task, and not the trainer's work that lends the model.
func TestFailedWriteOfAModel(t *testing.T) {
	e := &engine{Jobs: &core.Jobs{}}
	take := snapshotter{engine: e, lent: keep.NewLent(), lends: e.Start(core.Snapshot{}, func() {}), writes: e.Spawn(core.Write{})}
	if take.notPutDown(context.Canceled); e.Wanted(take.lends) || e.Wanted(take.writes) || e.Idle() {
		t.Error("a part of the write continues")
	}
}
