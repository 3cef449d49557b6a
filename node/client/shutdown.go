package client

import (
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/keep"
)

// A client that ends waits for its disk for at most diskShutdown plus the time of a disk that writes
// core.SlowHash bytes per second, and at most longestShutdown in total. A working disk needs less.
const (
	diskShutdown    = 3 * time.Second
	longestShutdown = time.Minute

	slowShutdown = 10 * time.Second // time after the end of the run when the client logs that it waits for the disk
)

// shutdown ends a client: it waits for tasks and logs what is lost.
type shutdown struct {
	own         *goroutines
	saver       *keep.Saver
	copies      *intermediates
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
func (s *shutdown) close() bool {
	ended := s.wait() && !s.computing
	if s.computing && !s.gaveUp {
		s.log.Info("this client ends without waiting for a computation", "tasks", s.own.open.Load())
		if s.leaves != nil {
			s.leaves()
		}
	}
	return ended
}

// wait waits for all tasks to end. After an interrupt it soon abandons tasks that write nothing,
// such as the loading of a large model. If a disk does not respond, it abandons the tasks that wait
// for the disk, and logs the models that are missing there. It reports whether everything is on the
// disk.
func (s *shutdown) wait() bool {
	if s.gaveUp {
		return false
	}
	steps, bytes := s.unwritten()
	limit := min(diskShutdown+time.Duration(bytes/core.SlowHash)*time.Second, longestShutdown)
	switch s.own.ended(s.interrupted, limit, func() {
		s.log.Info("waiting for the disk; a second Ctrl-C ends this client at once", "dir", s.saver.Folder.Dir, "unsaved_steps", steps, "limit", limit)
	}) {
	case allEnded:
		return true
	case onlyComputing:
		s.computing = true
		return true
	}
	s.gaveUp = true
	s.log.Error("the disk does not answer: this client ends without waiting for it", "dir", s.saver.Folder.Dir,
		"unsaved_steps", steps, "newest_saved_step", s.saver.Wrote())
	if s.hangs != nil {
		s.hangs()
	}
	return false
}

// unwritten returns the steps of the models that are being written to the disk, and the total bytes
// of these and of a momentum that is being written.
func (s *shutdown) unwritten() (steps []uint32, bytes int) {
	steps, bytes = s.saver.Unwritten()
	bytes += s.engine.keeping
	copies := s.copies.Unwritten()
	return append(steps, copies...), bytes + len(copies)*s.copies.Bytes()
}

// sayLoss saves what can still be saved. It logs the loss if this client, with newest as its newest
// step, was the last one to leave the run.
func (s *shutdown) sayLoss(v *view, newest uint32) {
	saved := make(chan uint32, 1)
	s.own.Run(func() func() {
		_ = s.own.work.AtDisk(func() error {
			s.saver.SaveNow()
			saved <- max(s.saver.OnDisk(v.state), s.copies.OnDisk(v.state))
			return nil
		})
		return func() {}
	})
	if !s.wait() {
		return
	}
	if loss := v.loss(newest, <-saved); loss != "" {
		s.log.Warn(loss)
	}
}
