package client

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/handover"
	"github.com/psyche-go/psyche/node/keep"
)

// How long a copy may take to the disk before the client goes on without waiting for it: so long, and as
// long again as a disk takes that writes so many bytes in a second.
const (
	diskTimeout = 30 * time.Second
	slowDisk    = 8 << 20
)

// Pauses between two attempts to write copies that are in memory only.
const (
	firstDiskPause = 2 * time.Second
	maxDiskPause   = time.Minute
)

// maxHung is how many copies may be stuck on their way to the disk when another one is begun: each keeps
// its memory.
const maxHung = 1

// commitDisk puts copies of commit points onto the disk, one at a time. One that is not there stays in
// memory, and is written when the disk has room for it, or answers, again.
type commitDisk struct {
	put   func(f keep.Folder, s checkpoint.Snapshot, facts checkpoint.Facts) error // nil: Folder.SaveCommit; another in tests
	write *diskWrite                                                               // nil: nothing is waited for
	hung  []*diskWrite                                                             // given up, and not back yet
	pause time.Duration                                                            // after the newest attempt failed; zero: it did not
	next  time.Time
}

// diskWrite is a copy on its way to the disk.
type diskWrite struct {
	point   commitPoint
	life    int
	until   time.Time // then it is given up
	awaited bool      // the copy is not among the models yet
	lent    bool      // there is no copy
}

// free reports whether another copy can be written.
func (d *commitDisk) free(now time.Time) bool {
	return d.write == nil && len(d.hung) <= maxHung && !now.Before(d.next)
}

// done takes note that something is not on its way any more.
func (d *commitDisk) done(w *diskWrite) {
	if d.write == w {
		d.write = nil
	}
	d.hung = slices.DeleteFunc(d.hung, func(stuck *diskWrite) bool { return stuck == w })
}

// diskTime is how long so many bytes may take to the disk.
func diskTime(bytes int) time.Duration {
	return diskTimeout + time.Duration(bytes/slowDisk)*time.Second
}

// later has the next attempt wait.
func (d *commitDisk) later(now time.Time) {
	d.pause = min(max(2*d.pause, firstDiskPause), maxDiskPause)
	d.next = now.Add(d.pause)
}

// save keeps a copy that was taken: on the disk where there is a folder that takes it.
func (c *commitPoints) save(point commitPoint, needed func(step uint32) bool) {
	if c.folder.Dir == "" || c.disk.write != nil || len(c.disk.hung) > 0 { // the disk has one already, or does not answer
		c.enter(point)
		return
	}
	if c.leaving {
		c.enter(point)
		c.put(point, needed, false)
		return
	}
	c.busy = true
	c.put(point, needed, true)
}

// saveLater gives up a copy that takes too long to the disk, and writes what is in memory only: first the
// newest that the run recorded.
func (c *commitPoints) saveLater(s *coordinator.State) {
	d, now := &c.disk, c.tasks.Now()
	if w := d.write; w != nil && now.After(w.until) {
		d.write, d.hung = nil, append(d.hung, w)
		d.later(now)
		became := "is kept in memory only"
		if w.lent {
			became = "is left out"
		}
		c.report.log.Error("the disk does not answer: the intermediate checkpoint "+became+"; training continues", "step", w.point.Step, "dir", c.folder.Dir)
		c.settle(w)
	}
	if c.folder.Dir == "" || c.busy || !d.free(now) {
		return
	}
	if point, ok := c.unsaved(s); ok {
		c.put(point, c.needed(s), false)
	}
}

// unsaved returns the newest copy in memory that the run recorded or, where that is on the disk, a newer one.
func (c *commitPoints) unsaved(s *coordinator.State) (found commitPoint, ok bool) {
	for _, p := range slices.Backward(c.models) {
		stuck := slices.ContainsFunc(c.disk.hung, func(w *diskWrite) bool { return w.point.Step == p.Step })
		inMemory := p.copy != nil && !stuck && p.facts != (checkpoint.Facts{}) // of one that came from others this client knows no facts
		if isRecorded(s, p.Recorded) {
			if inMemory {
				return p, true
			}
			break
		}
		if inMemory && !ok {
			found, ok = p, true
		}
	}
	return found, ok
}

// put writes a copy, and removes what is not needed before.
func (c *commitPoints) put(point commitPoint, needed func(step uint32) bool, awaited bool) {
	taken, folder, put := *point.copy, c.folder, c.disk.put
	if put == nil {
		put = keep.Folder.SaveCommit
	}
	needed = c.soon(needed)
	w := &diskWrite{point: point, life: c.life, until: c.tasks.Now().Add(diskTime(sizeOf(taken))), awaited: awaited}
	c.disk.write = w
	c.tasks.Spawn(func(context.Context) func() {
		var old error
		err := c.tasks.AtDisk(func() error {
			return quietly(taken, func() error {
				old = folder.DropCommits(needed)
				return put(folder, taken, point.facts)
			})
		})
		return func() {
			if old != nil {
				c.report.log.Warn("remove old commit points", "err", old)
			}
			c.wrote(w, err)
		}
	})
}

// wrote takes note of what became of a copy.
func (c *commitPoints) wrote(w *diskWrite, err error) {
	d, now := &c.disk, c.tasks.Now()
	d.done(w)
	switch {
	case err != nil:
		d.later(now)
		c.report.log.Error("intermediate checkpoint only in memory; training continues", "step", w.point.Step, "again in", d.pause, "err", err)
	default:
		d.pause, d.next, w.point.copy = 0, time.Time{}, nil
		if uint64(c.size) > c.large {
			c.tasks.Spawn(handover.GiveBack)
		}
		if !w.awaited {
			c.report.log.Info("wrote the commit point to the disk at last", "step", w.point.Step)
		}
	}
	if w.awaited {
		c.settle(w)
		return
	}
	for i := range c.models {
		if c.models[i].Recorded == w.point.Recorded {
			c.models[i].copy = w.point.copy
		}
	}
}

// settle enters a copy that is on the disk, or not waited for any more.
func (c *commitPoints) settle(w *diskWrite) {
	if !w.awaited {
		return
	}
	w.awaited, c.busy = false, false
	if w.life == c.life && !w.lent {
		c.enter(w.point)
	}
}
