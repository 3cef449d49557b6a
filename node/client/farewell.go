package client

import (
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/node/keep"
)

// How long a client that ends waits for a disk: a healthy one needs no more, and no longer for a large model than a
// disk takes that writes slowHash bytes in a second.
const (
	diskFarewell    = 3 * time.Second
	longestFarewell = time.Minute

	slowFarewell = 10 * time.Second // then it is said that a client whose run is over waits for the disk

	computes = 300 * time.Millisecond // time for tasks that write nothing to end, once the client is told to end
)

// farewell is the end of a client: what it waits for, and what it says then.
type farewell struct {
	own    *goroutines
	saver  *keep.Saver
	points *commitPoints
	engine *engine
	log    *slog.Logger
	told   <-chan struct{} // closed when the client is told to end
	hangs  func()          // is told that the disk is not waited for; may be nil
	leaves func()          // is told that tasks which write nothing are not waited for; may be nil

	gaveUp    bool
	computing bool // tasks that write nothing have not ended
}

// close waits, and reports whether all tasks have ended. If only tasks that write nothing have not, it tells leaves.
func (f *farewell) close() bool {
	ended := f.wait() && !f.computing
	if f.computing && !f.gaveUp {
		f.log.Info("this client ends without waiting for a computation", "tasks", f.own.open.Load())
		if f.leaves != nil {
			f.leaves()
		}
	}
	return ended
}

// wait waits for all that was started and is to end now, but once this client is told to end not for long for tasks
// that write nothing, such as the loading of a large model. It gives up what waits for a disk that does not answer,
// says what is not on it, and reports whether the disk has everything.
func (f *farewell) wait() bool {
	if f.gaveUp {
		return false
	}
	steps, bytes := f.unwritten()
	limit := min(diskFarewell+time.Duration(bytes/slowHash)*time.Second, longestFarewell)
	switch f.own.ended(f.told, limit, func() {
		f.log.Info("waiting for the disk; a second Ctrl-C ends this client at once", "dir", f.saver.Folder.Dir, "models of steps", steps, "at most", limit)
	}) {
	case allEnded:
		return true
	case onlyComputing:
		f.computing = true
		return true
	}
	f.gaveUp = true
	f.log.Error("the disk does not answer: this client ends without waiting for it", "dir", f.saver.Folder.Dir,
		"not saved", steps, "newest that this client saved", f.saver.Wrote())
	if f.hangs != nil {
		f.hangs()
	}
	return false
}

// unwritten returns the steps of the models that are on their way to the disk, and how many bytes they and a momentum
// that is have.
func (f *farewell) unwritten() (steps []uint32, bytes int) {
	steps, bytes = f.saver.Unwritten()
	bytes += f.engine.keeping
	disk := &f.points.disk
	writes := disk.hung
	if disk.write != nil {
		writes = append(writes[:len(writes):len(writes)], disk.write)
	}
	for _, w := range writes {
		steps, bytes = append(steps, w.point.Step), bytes+f.points.size
	}
	return steps, bytes
}

// sayLoss saves what can be saved still, and says what is lost when this client, whose newest step that is, has left the
// run as the last one.
func (f *farewell) sayLoss(v *view, newest uint32) {
	saved := make(chan uint32, 1)
	f.own.Run(func() func() {
		_ = f.own.work.AtDisk(func() error {
			f.saver.SaveNow()
			saved <- max(f.saver.OnDisk(v.state), f.points.onDisk(v.state))
			return nil
		})
		return func() {}
	})
	if !f.wait() {
		return
	}
	if loss := v.loss(newest, <-saved); loss != "" {
		f.log.Warn(loss)
	}
}
