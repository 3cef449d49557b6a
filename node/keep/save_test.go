package keep

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// TestHungDiskBounds checks a disk that does not answer for many epochs. At most two models wait
// for it, and it saves the newest once it answers.
func TestHungDiskBounds(t *testing.T) {
	b := newBench(filepath.Join(t.TempDir(), "checkpoints"), 0)
	for step := uint32(3); step <= 30; step += 3 {
		m := modelOf(step)
		b.Take(m)
		for range 3 {
			b.SaveAgreed(stateAfter(step, recorded(m)))
		}
	}
	if len(b.queue) != 2 || !b.Busy() {
		t.Errorf("%d models are on their way to a disk that does not answer", len(b.queue))
	}
	if said := strings.Count(b.log.String(), "level=WARN"); said != 1 {
		t.Errorf("reported %d times: %s", said, b.log.String())
	}
	b.work()
	b.SaveAgreed(stateAfter(30, recorded(modelOf(30))))
	b.work()
	if _, err := checkpoint.ReadFacts(b.Folder.Checkpoint(30)); err != nil || b.Busy() || b.Err() != nil {
		t.Errorf("the newest: %v, busy %v, %v", err, b.Busy(), b.Err())
	}
}

// TestFailedSaveIsRepeated checks that a failed save is reported with the files in its folder, is
// repeated with pauses, and is replaced by a later checkpoint.
func TestFailedSaveIsRepeated(t *testing.T) {
	b := newBench(filepath.Join(t.TempDir(), "checkpoints"), 3)
	b.now = time.Unix(1000, 0)
	save := func(step uint32) {
		m := modelOf(step)
		b.Take(m)
		b.SaveAgreed(stateAfter(step, recorded(m)))
		b.work()
	}
	save(3)
	away := b.Folder.Dir + ".away"
	if err := errors.Join(os.Rename(b.Folder.Dir, away), os.WriteFile(b.Folder.Dir, nil, 0o600)); err != nil { // not a folder
		t.Fatal(err)
	}
	save(6)
	if b.Err() == nil || b.Busy() || len(b.events) != 2 || b.events[1].Dir != "" || !strings.Contains(b.log.String(), "level=ERROR") {
		t.Fatalf("error %v, busy %v, events %+v, log %s", b.Err(), b.Busy(), b.events, b.log.String())
	}
	for range 3 {
		b.SaveAgreed(stateAfter(7, recorded(modelOf(6))))
	}
	if len(b.queue) != 0 {
		t.Fatal("repeated at once")
	}
	b.now = b.now.Add(firstSavePause)
	b.SaveAgreed(stateAfter(7, recorded(modelOf(6))))
	b.work()
	if b.Err() == nil || b.failed == nil || b.failed.pause != 2*firstSavePause {
		t.Fatalf("error %v, %+v", b.Err(), b.failed)
	}
	if err := errors.Join(os.Remove(b.Folder.Dir), os.Rename(away, b.Folder.Dir)); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(2 * firstSavePause)
	b.SaveAgreed(stateAfter(7, recorded(modelOf(6))))
	b.work()
	facts, err := checkpoint.ReadFacts(b.Folder.Checkpoint(6))
	if b.Err() != nil || err != nil || facts.DataIndex != 36 || b.failed != nil || b.events[len(b.events)-1].Dir == "" {
		t.Errorf("the repeated attempt: %v, %v, %+v", b.Err(), err, facts)
	}
}

// TestLessValuableFilesAreRemovedForRoom checks that only files that are less valuable than the
// newest checkpoint are removed to make room, in a fixed order, and no more than necessary.
func TestLessValuableFilesAreRemovedForRoom(t *testing.T) {
	full := fmt.Errorf("write: %w", &fs.PathError{Op: "write", Err: syscall.ENOSPC})
	for fits, want := range map[int]string{
		0: "", 1: "shared parts", 2: "shared parts, intermediate checkpoint", 3: "shared parts, intermediate checkpoint, optimizers",
		4: "shared parts, intermediate checkpoint, optimizers, step 3", 5: "shared parts, intermediate checkpoint, optimizers, step 3, step 6",
	} {
		b := newBench(t.TempDir(), 3)
		for _, step := range []uint32{3, 6, 9} {
			m := modelOf(step)
			b.Take(m)
			b.SaveAgreed(stateAfter(step, recorded(m)))
			b.work()
		}
		for _, step := range []uint32{11, 14} { // the second belongs to the next epoch and is kept
			if err := b.Folder.SaveIntermediate(modelOf(step).Snapshot, checkpoint.Facts{RunID: b.Folder.RunID, Step: step}); err != nil {
				t.Fatal(err)
			}
		}
		optimizers := filepath.Dir(b.Folder.Optimizer(9, [32]byte{}))
		if err := os.Mkdir(optimizers, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, step := range []uint32{6, 9} {
			if err := os.WriteFile(b.Folder.Optimizer(step, [32]byte{}), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		shared := false
		b.MakeRoom = func() int64 { shared = true; return 1 }
		attempts, commitGone := 0, false
		b.put = func(string, checkpoint.Snapshot, ...checkpoint.Extra) error {
			_, err := os.Stat(b.Folder.Intermediate(11))
			commitGone = err != nil
			if attempts++; attempts > fits {
				return nil
			}
			return full
		}
		m := modelOf(12)
		err := b.write(&attempt{model: &m, recorded: true}, b.Folder.Checkpoint(12))
		var gone []string
		if shared {
			gone = append(gone, "shared parts")
		}
		if commitGone {
			gone = append(gone, "intermediate checkpoint")
		}
		if _, err := os.Stat(b.Folder.Intermediate(14)); err != nil {
			t.Errorf("fits after %d: the intermediate checkpoint of the next epoch: %v", fits, err)
		}
		if left, _ := os.ReadDir(optimizers); len(left) == 1 {
			gone = append(gone, "optimizers")
		}
		for _, step := range []uint32{3, 6, 9} {
			if _, err := os.Stat(b.Folder.Checkpoint(step)); err != nil {
				gone = append(gone, fmt.Sprintf("step %d", step))
			}
		}
		if got := strings.Join(gone, ", "); err != nil || got != want {
			t.Errorf("fits after %d: gone are %q, want %q (%v)", fits, got, want, err)
		}
	}
}

// TestNewestRecordedModelStays checks that the newest recorded model is kept, although models of
// later steps are saved that the run did not record. If an epoch ends without agreement on its last
// model, the run continues from an earlier one.
func TestNewestRecordedModelStays(t *testing.T) {
	before, commit, last := modelOf(12), modelOf(20), modelOf(24)
	b := newBench(t.TempDir(), 1)
	saves := func(m Model, s *coordinator.State) {
		b.Take(m)
		b.SaveAgreed(s)
		b.work()
	}
	saves(before, stateAfter(12, recorded(before)))
	s := stateAfter(24, recorded(commit))
	s.Earlier = []coordinator.Recorded{{Step: 12, Digest: before.Digest}}
	saves(last, s)
	if newest, found := newBench(b.Folder.Dir, 0).Newest(s); !found || newest.Step != 12 {
		t.Errorf("the newest recorded model in the folder is of step %d, %v; want 12, which was in the folder", newest.Step, found)
	}
	commit.Facts = FactsAfter(stateAfter(20, recorded(before)), 20) // the state of the run when it was taken
	commit.Facts.Digest = hex.EncodeToString(commit.Digest[:])
	saves(commit, s)
	if !newBench(b.Folder.Dir, 0).Holds(recorded(commit)) {
		t.Errorf("the model that the run continues from was removed when it was saved: %v, %v", b.Err(), &b.log)
	}
	next := modelOf(36)
	saves(next, stateAfter(36, recorded(next)))
	entries, err := os.ReadDir(b.Folder.Dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "test-run-step36" {
		t.Errorf("left are %v, %v", entries, err)
	}
}

// TestForgottenFuture checks a folder with checkpoints of steps that the run's host forgot. They
// are kept, do not count toward the limit, and do not prevent the run's checkpoints from being
// saved.
func TestForgottenFuture(t *testing.T) {
	b := newBench(t.TempDir(), 2)
	for _, step := range []uint32{12, 15, 18} {
		m := modelOf(step)
		m.Snapshot.Tensors[0].Data[0]++ // differs from the present model of the run
		m.Digest = m.Snapshot.Manifest().Digest()
		b.Take(m)
		b.SaveAgreed(stateAfter(step, recorded(m)))
		b.work()
	}
	for _, step := range []uint32{6, 9, 12, 15} {
		m := modelOf(step)
		b.Take(m)
		b.SaveAgreed(stateAfter(step, recorded(m)))
		b.work()
		if b.Err() != nil || !newBench(b.Folder.Dir, 0).Holds(recorded(m)) {
			t.Errorf("step %d is not saved: %v", step, b.Err())
		}
		if step == 9 && !newBench(b.Folder.Dir, 0).Holds(recorded(modelOf(6))) {
			t.Error("checkpoints of forgotten steps count for the limit")
		}
	}
	entries, err := os.ReadDir(b.Folder.Dir)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := "[test-run-step12 test-run-step15 test-run-step15.forgotten test-run-step18]"; err != nil || fmt.Sprint(left) != want {
		t.Errorf("left are %v, want %v; %v", left, want, err)
	}
}
