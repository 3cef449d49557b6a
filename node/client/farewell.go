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

	computes = 300 * time.Millisecond // time for tasks that write nothing to end after an interrupt
)

// farewell is the end of a client: what it waits for, and what it says then.
type farewell struct {
	own         *goroutines
	saver       *keep.Saver
	points      *commitPoints
	engine      *engine
	log         *slog.Logger
	interrupted <-chan struct{} // closed at the interrupt of the client
	hangs       func()          // called when wait gives up the disk; may be nil
	leaves      func()          // called when wait gives up tasks that write nothing; may be nil

	gaveUp    bool
	computing bool // tasks that write nothing have not ended
}

// close waits, and reports whether all tasks have ended. If only tasks that write nothing are left, it calls leaves.
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

// wait waits for all tasks, which are to end now. After an interrupt it soon gives up tasks that write nothing, such as
// the loading of a large model. It gives up tasks of a disk that does not answer, logs the models that are missing on
// the disk, and reports whether the disk has everything.
func (f *farewell) wait() bool {
	if f.gaveUp {
		return false
	}
	steps, bytes := f.unwritten()
	limit := min(diskFarewell+time.Duration(bytes/slowHash)*time.Second, longestFarewell)
	switch f.own.ended(f.interrupted, limit, func() {
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
