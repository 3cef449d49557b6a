package client

import (
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/node/keep"
)

// A client that ends waits for its disk for at most diskFarewell plus the time of a disk that writes
// slowHash bytes per second, and at most longestFarewell in total. A working disk needs less.
const (
	diskFarewell    = 3 * time.Second
	longestFarewell = time.Minute

	slowFarewell = 10 * time.Second // time after the end of the run when the client logs that it waits for the disk

	computes = 300 * time.Millisecond // time that tasks without writes have to end after an interrupt
)

// farewell ends a client: it waits for tasks and logs what is lost.
type farewell struct {
	own         *goroutines
	saver       *keep.Saver
	points      *commitPoints
	engine      *engine
	log         *slog.Logger
	interrupted <-chan struct{} // closed when the client is interrupted
	hangs       func()          // called when wait abandons writes to the disk; may be nil
	leaves      func()          // called when wait abandons tasks that write nothing; may be nil

	gaveUp    bool
	computing bool // tasks that write nothing are still running
}

// close waits, and reports whether all tasks have ended. If only tasks that write nothing are left,
// it calls leaves.
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

// wait waits for all tasks to end. After an interrupt it soon abandons tasks that write nothing,
// such as the loading of a large model. If a disk does not respond, it abandons the tasks that wait
// for the disk, and logs the models that are missing there. It reports whether everything is on the
// disk.
func (f *farewell) wait() bool {
	if f.gaveUp {
		return false
	}
	steps, bytes := f.unwritten()
	limit := min(diskFarewell+time.Duration(bytes/slowHash)*time.Second, longestFarewell)
	switch f.own.ended(f.interrupted, limit, func() {
		f.log.Info("waiting for the disk; a second Ctrl-C ends this client at once", "dir", f.saver.Folder.Dir, "unsaved_steps", steps, "limit", limit)
	}) {
	case allEnded:
		return true
	case onlyComputing:
		f.computing = true
		return true
	}
	f.gaveUp = true
	f.log.Error("the disk does not answer: this client ends without waiting for it", "dir", f.saver.Folder.Dir,
		"unsaved_steps", steps, "newest_saved_step", f.saver.Wrote())
	if f.hangs != nil {
		f.hangs()
	}
	return false
}

// unwritten returns the steps of the models that are being written to the disk, and the total bytes
// of these and of a momentum that is being written.
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

// sayLoss saves what can still be saved. It logs the loss if this client, with newest as its newest
// step, was the last one to leave the run.
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
