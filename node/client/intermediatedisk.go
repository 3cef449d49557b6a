package client

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/modelsync"
)

// The client waits for a copy to reach the disk for at most diskTimeout plus the time of a disk that
// writes slowDisk bytes per second.
const (
	diskTimeout = 30 * time.Second
	slowDisk    = 8 << 20
)

// Pauses between two attempts to write copies that exist only in memory.
const (
	firstDiskPause = 2 * time.Second
	maxDiskPause   = time.Minute
)

// maxHung is the maximum number of hanging writes with which a new write may start. Each hanging
// write keeps its copy in memory.
const maxHung = 1

// intermediateDisk writes intermediate checkpoints to the disk, one at a time. A copy that cannot be
// written stays in memory, and is written when the disk has space or responds again.
type intermediateDisk struct {
	put   func(f keep.Folder, s checkpoint.Snapshot, facts checkpoint.Facts) error // nil: Folder.SaveIntermediate; replaced in tests
	write *diskWrite                                                               // nil: no write in progress
	hung  []*diskWrite                                                             // abandoned but not finished
	pause time.Duration                                                            // after the newest attempt, if that failed; zero: it succeeded
	next  time.Time
}

// diskWrite is the writing of one copy.
type diskWrite struct {
	point   intermediate
	task    core.ID
	until   time.Time // when to abandon it
	awaited bool      // the copy is not yet in models
	lent    bool      // the model is lent, not copied
}

// free reports whether another copy can be written.
func (d *intermediateDisk) free(now time.Time) bool {
	return d.write == nil && len(d.hung) <= maxHung && !now.Before(d.next)
}

// done records that a write has finished.
func (d *intermediateDisk) done(w *diskWrite) {
	if d.write == w {
		d.write = nil
	}
	d.hung = slices.DeleteFunc(d.hung, func(stuck *diskWrite) bool { return stuck == w })
}

// diskTime returns the time limit for writing a number of bytes.
func diskTime(bytes int) time.Duration {
	return diskTimeout + time.Duration(bytes/slowDisk)*time.Second
}

// later delays the next attempt.
func (d *intermediateDisk) later(now time.Time) {
	d.pause = min(max(2*d.pause, firstDiskPause), maxDiskPause)
	d.next = now.Add(d.pause)
}

// save keeps a copy: on the disk if there is a folder and the disk accepts it, else in memory.
func (c *intermediates) save(point intermediate, needed func(step uint32) bool) {
	if c.folder.Dir == "" || c.disk.write != nil || len(c.disk.hung) > 0 { // the disk is busy or does not respond
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

// saveLater abandons a write that takes too long, and writes copies that exist only in memory:
// first the newest copy that the run recorded.
func (c *intermediates) saveLater(s *coordinator.State) {
	d, now := &c.disk, c.tasks.Now()
	if w := d.write; w != nil && now.After(w.until) {
		d.write, d.hung = nil, append(d.hung, w)
		d.later(now)
		became := "is kept in memory only"
		if w.lent {
			became = "is left out"
		}
		c.report.log.Error("the disk does not answer: the intermediate checkpoint "+became+"; training continues", "step", w.point.Step, "dir", c.folder.Dir)
		c.endWrite(w, c.jobs.Wanted(w.task))
	}
	if c.folder.Dir == "" || c.busy || !d.free(now) {
		return
	}
	if point, ok := c.unsaved(s); ok {
		c.put(point, c.needed(s), false)
	}
}

// unsaved returns the newest copy in memory that the run recorded or, if that is on the disk, a
// newer one.
func (c *intermediates) unsaved(s *coordinator.State) (found intermediate, ok bool) {
	for _, p := range slices.Backward(c.models) {
		stuck := slices.ContainsFunc(c.disk.hung, func(w *diskWrite) bool { return w.point.Step == p.Step })
		inMemory := p.copy != nil && !stuck && p.facts != (checkpoint.Facts{}) // the facts of models from other members are unknown
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

// put removes folders that are no longer needed, and then writes a copy.
func (c *intermediates) put(point intermediate, needed func(step uint32) bool, awaited bool) {
	taken, folder, put := *point.copy, c.folder, c.disk.put
	if put == nil {
		put = keep.Folder.SaveIntermediate
	}
	needed = c.soon(needed)
	w := &diskWrite{point: point, until: c.tasks.Now().Add(diskTime(sizeOf(taken))), awaited: awaited}
	c.disk.write = w
	w.task = spawn(c.tasks, c.jobs, core.WriteIntermediate{Step: point.Step}, func(context.Context) (r intermediateWrite) {
		r.err = c.tasks.AtDisk(func() error {
			return quietly(taken, func() error {
				r.old = folder.DropIntermediates(needed)
				return put(folder, taken, point.facts)
			})
		})
		return r
	}, func(r intermediateWrite) { c.wrote(w, r, true) }, func(r intermediateWrite) { c.wrote(w, r, false) })
}

// wrote handles the result of writing a copy. wanted reports whether the client still wants the
// copy.
func (c *intermediates) wrote(w *diskWrite, r intermediateWrite, wanted bool) {
	c.warnOf(r.old)
	d, now := &c.disk, c.tasks.Now()
	d.done(w)
	switch {
	case r.err != nil:
		d.later(now)
		c.report.log.Error("intermediate checkpoint only in memory; training continues", "step", w.point.Step, "retry_in", d.pause, "err", r.err)
	default:
		d.pause, d.next, w.point.copy = 0, time.Time{}, nil
		if uint64(c.size) > c.large {
			c.tasks.Spawn(modelsync.GiveBack)
		}
		if !w.awaited {
			c.report.log.Info("wrote the intermediate checkpoint to the disk after a delay", "step", w.point.Step)
		}
	}
	if w.awaited {
		c.endWrite(w, wanted)
		return
	}
	for i := range c.models {
		if c.models[i].Recorded == w.point.Recorded {
			c.models[i].copy = w.point.copy
		}
	}
}

// endWrite adds a copy to the models, when it is on the disk or the client stops waiting for its
// write. If the copy is not wanted, endWrite drops it.
func (c *intermediates) endWrite(w *diskWrite, wanted bool) {
	if !w.awaited {
		return
	}
	w.awaited, c.busy = false, false
	if wanted && !w.lent {
		c.enter(w.point)
	}
}

// warnOf logs an error of removing old intermediate checkpoints.
func (c *intermediates) warnOf(err error) {
	if err != nil {
		c.report.log.Warn("cannot remove old intermediate checkpoints", "err", err)
	}
}
