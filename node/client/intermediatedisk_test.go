package client

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/diskspace/diskspacetest"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/keep"
)

// faultyDisk is the disk for a member's intermediate checkpoints.
type faultyDisk struct {
	journal
	dir   string
	fault func(step uint32) error // called instead of writing; nil means that writing succeeds
}

// change makes a client use this disk.
func (d *faultyDisk) change(o *options) {
	o.CheckpointDir = d.dir
	d.keeps(o)
	o.prepare = func(n *Node) {
		n.models.copies.save = func(f keep.Folder, s checkpoint.Snapshot, facts checkpoint.Facts) error {
			if err := d.fault(facts.Step); err != nil {
				return err
			}
			return f.SaveIntermediate(s, facts)
		}
	}
}

// has reports whether the copy of a step exists.
func (d *faultyDisk) has(step uint32) bool {
	f := keep.Folder{Dir: d.dir, RunID: clienttest.RunID}
	_, err := f.Intermediates().Digest(step)
	return err == nil
}

// reportOf returns the step of the newest model that a client reported.
func reportOf(s *coordinator.State, m *member) uint32 {
	c, _ := s.Member(coordinator.ClientID(m.id))
	if c == nil {
		return 0
	}
	return max(c.Report.Step, c.HoldsEarlier)
}

// longEpoch returns a run of one epoch that is long enough for a disk to fail in it.
func longEpoch(t *testing.T, every string) *world {
	config := epochs(3)
	config.RoundsPerEpoch, config.TotalSteps = 120, 120
	return newWorld(t, config, []byte(`{"CommitEveryRounds": `+every+`}`)...)
}

// TestHungDisk checks a disk that stops answering. The intermediate checkpoint is abandoned and the
// failure reported, but training continues. Later checkpoints are reported again, and written once
// the disk answers.
func TestHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := longEpoch(t, "3")
		answers := make(chan struct{})
		d := &faultyDisk{dir: filepath.Join(w.dir, "disk")}
		d.fault = func(step uint32) error {
			if step >= 6 {
				<-answers
			}
			return nil
		}
		hung, others := w.launch(0, d.change), []*member{w.launch(1, nil), w.launch(2, nil)}
		w.reach(7, coordinator.RoundTrain)
		time.Sleep(diskTimeout + 10*time.Second)
		s := w.host.State()
		if s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness || reportOf(&s, hung)+6 < s.Progress.Step {
			t.Errorf("in step %d the client with the hung disk reported the model of step %d", s.Progress.Step, reportOf(&s, hung))
		}
		if d.has(6) || len(d.lines("level=ERROR", "step=6", "dir=")) == 0 {
			t.Error("the hung disk is not reported")
		}
		close(answers)
		w.reach(s.Progress.Step+4, coordinator.RoundTrain)
		s = w.host.State()
		if !d.has(s.Epoch.Commit.Step) || reportOf(&s, hung) < s.Epoch.Commit.Step {
			t.Errorf("the intermediate checkpoint of step %d is not on the disk that answers again", s.Epoch.Commit.Step)
		}
		finishEqual(w, append(others, hung)...)
		checkNobodyAccused(t, w, append(others, hung))
	})
}

// TestDiskThatWasFull checks that the newest recorded intermediate checkpoint is written when there
// is room again, although no later one is taken.
func TestDiskThatWasFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := longEpoch(t, "50")
		var mu sync.Mutex
		full := true
		d := &faultyDisk{dir: filepath.Join(w.dir, "disk")}
		d.fault = func(step uint32) error {
			mu.Lock()
			defer mu.Unlock()
			if full {
				return syscall.ENOSPC
			}
			return nil
		}
		members := []*member{w.launch(0, d.change), w.launch(1, nil), w.launch(2, nil)}
		w.until("an intermediate checkpoint", func(s *coordinator.State) bool { return s.Epoch.Commit.Step == 50 })
		time.Sleep(5 * time.Second)
		if d.has(50) || len(d.lines("level=ERROR", "step=50", "retry_in=")) == 0 {
			t.Error("a full disk is not reported")
		}
		mu.Lock()
		full = false
		mu.Unlock()
		time.Sleep(10 * time.Second)
		if s := w.host.State(); s.Progress.Step > 99 || !d.has(50) || len(d.lines("level=INFO", "step=50")) == 0 {
			t.Errorf("in step %d the intermediate checkpoint of step 50 is not on the disk, which has room", s.Progress.Step)
		}
		finishEqual(w, members...)
	})
}

// TestPanicBesideTheTraining checks that a panic costs one intermediate checkpoint and is reported,
// both for a small model and for a large model, which is hashed in a separate goroutine.
func TestPanicBesideTheTraining(t *testing.T) {
	for _, bulk := range []int{0, largeModel} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, epochs(3), []byte(everyThird)...)
			d := &faultyDisk{dir: filepath.Join(w.dir, "disk")}
			d.fault = func(step uint32) error {
				if step == 3 {
					panic("on purpose")
				}
				return nil
			}
			grow := func(change func(*options)) func(o *options) {
				return func(o *options) {
					o.trainer.Bulk = bulk
					if change != nil {
						change(o)
					}
				}
			}
			members := []*member{w.launch(0, grow(d.change)), w.launch(1, grow(nil)), w.launch(2, grow(nil))}
			w.reach(9, coordinator.RoundTrain)
			if len(d.lines("panic: on purpose")) == 0 || !d.has(6) {
				t.Errorf("%d bytes: the panic is not reported, or later intermediate checkpoints are missing", bulk)
			}
			finishEqual(w, members...)
		})
	}
}

// TestFinalCheckpointWaitsForRoom checks that a client with a full disk at the end of the run saves
// the final model if the user makes room in time, and otherwise ends with the reason.
func TestFinalCheckpointWaitsForRoom(t *testing.T) {
	for name, room := range map[string]bool{"there is room": true, "the disk stays full": false} {
		t.Run(name, func(t *testing.T) {
			disk := diskspacetest.Mount(t, 256<<10)
			dir, ballast := filepath.Join(disk, "checkpoints"), filepath.Join(disk, "ballast")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !diskspace.IsFull(err) {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, epochs(2))
				d := &faultyDisk{dir: dir, fault: func(uint32) error { return nil }}
				full, others := w.launch(0, d.change), []*member{w.launch(1, nil), w.launch(2, nil)}
				w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
				finished := time.Now()
				time.Sleep(5 * time.Second)
				select {
				case <-full.done:
					t.Fatal("the client does not wait:", full.err)
				default:
				}
				if len(d.lines("level=WARN", "remove other files", dir)) != 1 {
					t.Error("the wait is not reported")
				}
				if room {
					time.Sleep(15 * time.Second) // the pauses have become longer
					if err := os.Remove(ballast); err != nil {
						t.Fatal(err)
					}
					finishEqual(w, append(others, full)...)
					if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
						t.Errorf("no checkpoint: %v", err)
					}
					return
				}
				full.wait()
				if took := time.Since(finished); !diskspace.IsFull(full.err) || took < defaultFinalWait || took > 2*defaultFinalWait {
					t.Errorf("after %v: %v", took, full.err)
				}
				finishEqual(w, others...)
			})
		})
	}
}
