package client

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// stored is an archive of the checkpoints that clients saved, by the names of their folders.
func stored(dir string) func(context.Context, coordinator.Checkpoint, coordinator.Location) (checkpoint.Snapshot, error) {
	return func(_ context.Context, _ coordinator.Checkpoint, at coordinator.Location) (checkpoint.Snapshot, error) {
		if at == (coordinator.Location{}) {
			return checkpoint.Snapshot{}, errors.New("no snapshot")
		}
		if at.Repo == "false" {
			return clienttest.Model(), nil
		}
		return checkpoint.ReadDir(filepath.Join(dir, at.Revision))
	}
}

// TestLostModelComesFromAnUpload ends all clients in the third epoch, after the first checkpoint
// was uploaded. New clients continue from there, although one member reported a false upload.
func TestLostModelComesFromAnUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(2)
		config.TotalSteps = 15
		w := newWorld(t, config)
		dir := t.TempDir()
		uploads := func(o *options) { o.CheckpointDir = dir }
		a, b := w.launch(0, uploads), w.launch(1, nil)
		w.until("a checkpoint", func(s *coordinator.State) bool { return s.Progress.Epoch == 1 && s.RunState == coordinator.RoundTrain })
		saved := all[event.Checkpoint](a)[0]
		at := coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket", Revision: filepath.Base(saved.Dir)}
		b.node.Uploaded(checkpoint.Facts{RunID: clienttest.RunID, Step: saved.Step, Digest: saved.Digest}, coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "false"})
		b.node.Uploaded(checkpoint.Facts{RunID: "other", Step: saved.Step + 9, Digest: saved.Digest}, at)
		w.until("the false upload", func(s *coordinator.State) bool { return len(s.Uploads) == 1 })
		w.until("later", func(s *coordinator.State) bool { return s.Progress.Epoch == 2 && s.RunState == coordinator.RoundTrain })
		a.node.Uploaded(checkpoint.Facts{RunID: clienttest.RunID, Step: saved.Step, Digest: saved.Digest}, at)
		w.until("the report", func(s *coordinator.State) bool { return len(s.Uploads) == 2 && len(all[event.Uploaded](a)) > 0 })
		a.crash()
		b.crash()
		if uploaded := all[event.Uploaded](a); len(uploaded) != 1 || uploaded[0].Step != saved.Step || !strings.Contains(uploaded[0].Place, at.Revision) {
			t.Errorf("events: %+v", uploaded)
		}
		archive := func(o *options) { o.Archive = stored(dir) }
		c, d := w.launch(2, archive), w.launch(3, archive)
		w.until("they have it", func(*coordinator.State) bool { return len(all[event.Ready](c))*len(all[event.Ready](d)) > 0 })
		if ready := all[event.Ready](c)[0]; ready.Digest != saved.Digest || ready.Source == "initial" {
			t.Errorf("ready: %+v, want %+v", ready, saved)
		}
		finishEqual(w, c, d)
		state := w.host.State()
		if len(state.RollbackGaps) != 1 || state.RollbackGaps[0].First != saved.Step+1 || state.Progress.DataIndex != 15*12 {
			t.Errorf("rollback gaps %+v, data index %d", state.RollbackGaps, state.Progress.DataIndex)
		}
	})
}

// TestPowerLoss kills all clients in a round. A client with the run's checkpoint on its disk gives
// it to the other, and only the round is lost.
func TestPowerLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(2)
		config.TotalSteps = 15
		config.MinClients = 2 // so that a client that is killed a moment later cannot record a checkpoint alone
		w := newWorld(t, config)
		dir := t.TempDir()
		keep := func(o *options) { o.CheckpointDir = dir }
		a, b := w.launch(0, keep), w.launch(1, nil)
		w.until("second epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 1 && s.RunState == coordinator.RoundTrain })
		crash(a, b)
		before := w.host.State()
		again, other := w.launch(0, keep), w.launch(1, nil)
		w.until("both have it", func(*coordinator.State) bool {
			return len(all[event.Ready](again))*len(all[event.Ready](other)) > 0
		})
		first, second := all[event.Ready](again)[0], all[event.Ready](other)[0]
		if first.Source != "disk" || second.Source != "peers" || second.Digest != hexOf(before.Model.Checkpoint.Digest) {
			t.Errorf("ready: %+v and %+v", first, second)
		}
		if s := w.host.State(); !s.Epoch.ColdStart {
			t.Error("optimizers are young, and the epoch is not cold")
		}
		finishEqual(w, again, other)
	})
}

// TestUploadsThatTakeEpochs checks a client whose uploads take several epochs. An upload is
// reported to the run if the run still remembers its checkpoint. Otherwise the client logs that it
// was too slow, and nothing else changes.
func TestUploadsThatTakeEpochs(t *testing.T) {
	for epochs, known := range map[uint32]bool{3: true, 5: false} {
		synctest.Test(t, func(t *testing.T) {
			config := clienttest.Config(1)
			config.TotalSteps = 3 * (2*epochs + 2)
			w := newWorld(t, config, []byte(`{"CommitEveryRounds":1}`)...)
			var log journal
			a := w.launch(0, func(o *options) { o.CheckpointDir = filepath.Join(w.dir, "disk"); log.keeps(o) })
			for upload := range uint32(2) {
				begins := 1 + upload*epochs
				w.until("it begins", func(s *coordinator.State) bool {
					return s.Progress.Epoch == begins && s.RunState == coordinator.RoundTrain
				})
				saved := all[event.Checkpoint](a)[begins-1]
				w.until("it is there", func(s *coordinator.State) bool {
					return s.Progress.Epoch == begins+epochs && s.RunState == coordinator.RoundTrain
				})
				a.node.Uploaded(checkpoint.Facts{RunID: clienttest.RunID, Step: saved.Step, Digest: saved.Digest}, coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"})
				w.until("the next round", func(s *coordinator.State) bool { return s.Progress.Step > 3*(begins+epochs)+1 })
				if s := w.host.State(); (len(s.Uploads) == 1 && s.Uploads[0].Step == saved.Step) != known {
					t.Errorf("upload %d of %d epochs: the run knows of %+v", upload, epochs, s.Uploads)
				}
			}
			finishEqual(w, a)
			if said := log.lines("level=WARN", "oldest_recorded_step="); len(said) != map[bool]int{false: 2}[known] {
				t.Errorf("uploads of %d epochs: it reported %q", epochs, said)
			}
		})
	}
}

// TestUploadsOfNoUse checks that useless uploads are dropped without a report to the run.
func TestUploadsOfNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(1))
		a := w.launch(0, nil)
		w.until("second epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 1 && s.RunState == coordinator.RoundTrain })
		at := coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"}
		for _, f := range []checkpoint.Facts{{RunID: clienttest.RunID, Step: 3, Digest: strings.Repeat("0", 64)}, {RunID: clienttest.RunID, Step: 3, Digest: "0"}} {
			a.node.Uploaded(f, at)
		}
		finishEqual(w, a)
		if s := w.host.State(); len(s.Uploads) != 0 || len(all[event.Uploaded](a)) != 0 {
			t.Errorf("uploads %+v", s.Uploads)
		}
		a.node.Uploaded(checkpoint.Facts{RunID: clienttest.RunID, Step: 9, Digest: strings.Repeat("0", 64)}, at) // no notification
	})
}
