package client

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/models"
)

// slowLender is a network that lends parts in memory slowly, and the first parts in files even more
// slowly.
type slowLender struct {
	env.Network
	file, memory time.Duration // time for each part
	slow         *atomic.Int32 // number of slow parts
}

func (s slowLender) LendFrom(data *io.SectionReader, lost func(error)) ([32]byte, error) {
	if s.slow.Add(-1) >= 0 {
		time.Sleep(s.file)
	}
	return s.Network.LendFrom(data, lost)
}

func (s slowLender) Lend(data []byte) ([32]byte, error) {
	defer time.Sleep(s.memory)
	return s.Network.Lend(data)
}

// TestModelPutDownTooLate checks a model that the disk takes too long to write. It is copied in the
// meantime. All parts of the copy can be fetched, whether the disk finishes before or after the
// copy is shared.
func TestModelPutDownTooLate(t *testing.T) {
	for late := 50 * time.Millisecond; late < 2*time.Second; late += 150 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			config := epochs(3)
			w := newWorld(t, config, []byte(everyThird)...)
			limit := time.Duration(config.CooldownTime) * time.Millisecond / 2
			var node *Node
			var slow atomic.Int32
			m := w.launch(0, func(o *options) {
				filed(o)
				o.CheckpointDir = filepath.Join(w.dir, "disk")
				o.Network = slowLender{o.Network, limit + late, time.Second, &slow}
				lower := o.prepare
				o.prepare = func(n *Node) { lower(n); node = n }
			})
			others := []*member{w.launch(1, nil), w.launch(2, nil)}
			w.reach(12, coordinator.RoundTrain)
			slow.Store(2 * clienttest.Width)
			w.until("it is the run's", func(s *coordinator.State) bool { return s.Model.Checkpoint.Step == 12 })
			synctest.Wait()
			model := node.models.Held
			if model == nil {
				t.Fatalf("%v late: the client holds no model", late)
			}
			for i, hash := range model.Blobs {
				if _, err := m.net.FetchUpTo(t.Context(), hash, 1<<30, nil); err != nil {
					t.Errorf("%v late: part %d: %v", late, i, err)
				}
			}
			slow.Store(0)
			finishEqual(w, append(others, m)...)
			checkNobodyAccused(t, w, append(others, m))
		})
	}
}

// reporting records whether a client reported a model before a step.
type reporting struct {
	env.Backend
	step uint32
	said *atomic.Bool
}

func (r reporting) Submit(ctx context.Context, a coordinator.Action) error {
	if report, ok := a.(coordinator.ReportCheckpoint); ok && report.Step == r.step {
		r.said.Store(true)
	}
	return r.Backend.Submit(ctx, a)
}

// TestLeavingAwaitsTheModelBeingWritten checks that a client that leaves while the epoch's model is
// being written and hashed first reports that it holds the model, although that takes longer than
// leaving usually takes.
func TestLeavingAwaitsTheModelBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, epochs(3), []byte(everyThird)...)
		var slow atomic.Int32
		var said atomic.Bool
		m := w.launch(0, func(o *options) {
			filed(o)
			o.CheckpointDir = filepath.Join(w.dir, "disk")
			o.Backend = reporting{o.Backend, 13, &said}
			o.Network = slowLender{o.Network, 2 * defaultLeaveTimeout, 0, &slow}
		})
		others := []*member{w.launch(1, nil), w.launch(2, nil)}
		w.reach(12, coordinator.RoundTrain)
		slow.Store(clienttest.Width)
		w.reach(12, coordinator.Cooldown)
		m.cancel()
		m.wait()
		if !said.Load() {
			t.Error("the client left without reporting which model it holds")
		}
		crash(others...)
	})
}

// lateDisk is a Runtime whose disk starts each task late.
type lateDisk struct {
	*goroutines
	late time.Duration
}

func (l *lateDisk) Run(task func() func()) {
	late := l.late
	l.goroutines.Run(func() func() {
		time.Sleep(late)
		return task()
	})
}

// diskTimeout is the time after which a client abandons the write of a small model.
const diskTimeout = 30 * time.Second

// TestLateRemovalKeepsNewFolders checks that a removal of folders that a hung disk executes late
// does not remove folders that were written in the meantime.
func TestLateRemovalKeepsNewFolders(t *testing.T) {
	for _, late := range []time.Duration{0, 2 * diskTimeout} {
		synctest.Test(t, func(t *testing.T) {
			tasks := &env.Tasks{}
			own := newGoroutines(tasks)
			disk := &lateDisk{own, late}
			var cancel context.CancelFunc
			tasks.Runtime = disk
			tasks.Work, cancel = context.WithCancel(t.Context())
			f := keep.Folder{Dir: t.TempDir(), RunID: clienttest.RunID}
			c := &intermediates{
				Copies: models.Copies{Folder: true, Model: 1},
				tasks:  tasks, jobs: &core.Jobs{}, folder: f, log: slog.New(slog.DiscardHandler), save: keep.Folder.SaveIntermediate,
			}
			s := &coordinator.State{Epoch: coordinator.Epoch{StartStep: 1}, Progress: coordinator.Progress{Step: 9}}
			point := func(step uint32) models.Copy {
				model := clienttest.Model()
				model.Step = step
				digest := model.Manifest().Digest()
				return models.Copy{Recorded: coordinator.Recorded{Step: step, Digest: digest}, Memory: &model, Facts: checkpoint.Facts{RunID: f.RunID, Step: step, Digest: hexOf(digest)}}
			}
			write := func(step uint32) {
				if p := point(step); f.SaveIntermediate(*p.Memory, p.Facts) != nil {
					t.Fatal("the model was not written")
				}
			}
			write(1)
			c.Add(point(3))
			w := c.Next(time.Now(), s)
			c.write(w)
			c.Written(time.Now(), w, nil, true)
			taking := c.begin(s, &clienttest.Trainer{}, 5)
			taking.abandon()
			if late > 0 {
				time.Sleep(diskTimeout)
				write(6)
			}
			go func() {
				for done := range own.posts {
					done()
				}
			}()
			time.Sleep(3 * diskTimeout)
			synctest.Wait()
			for step, want := range map[uint32]bool{1: late > 0, 3: true, 6: late > 0} {
				if _, err := f.Intermediates().Digest(step); (err == nil) != want {
					t.Errorf("%v late: the folder of step %d exists: %v", late, step, err == nil)
				}
			}
			cancel()
			own.tasks.Wait()
			close(own.posts)
		})
	}
}
