package models

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
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

// While a large model is written from the trainer's memory, the trainer waits for at most
// 1/lentPart of the time that members have to train a round, and at most lentTime.
const (
	lentPart = 10
	lentTime = 10 * time.Second
)

// disk decides about writes of copies to the disk, one at a time. A copy that cannot be written
// stays in memory, and is written when the disk has space or responds again.
type disk struct {
	write *Write   // nil: no write in progress
	hung  []*Write // abandoned but not finished
	pause time.Duration
	next  time.Time // earliest time of the next attempt after a failure
}

// Write is the writing of a copy to the disk.
type Write struct {
	Copy
	Kept          // folders that stay; the write first removes the others
	Task  core.ID // set by the caller
	Lent  bool    // the model is lent, not copied; after the write the caller sets Digest and Facts
	First bool    // the client does not have the copy before it is written
	until time.Time
}

// Kept tells which folders of intermediate checkpoints stay when others are removed.
type Kept struct {
	steps       map[uint32]bool
	from, until uint32    // also from <= step < until
	all         time.Time // from then on all folders stay, because further models may have been written
}

// Keeps reports whether the folder of a step stays. A disk may execute a removal late.
func (k *Kept) Keeps(now time.Time, step uint32) bool {
	return k.steps[step] || step >= k.from && step < k.until || !now.Before(k.all)
}

// kept returns the folders to keep when a copy is written:
//   - the folders of models in use;
//   - if this client does not have the run's newest intermediate checkpoint, the folders of all models
//     that the run recorded;
//   - the folders from an earlier process of this client, whose models the run may still record.
//
// All other folders contain abandoned models.
func (c *Copies) kept(now time.Time, s *coordinator.State) Kept {
	commit := s.Epoch.Commit
	k := Kept{steps: map[uint32]bool{s.Model.Checkpoint.Step: true}, from: max(commit.Step+1, s.Epoch.StartStep), until: c.first, all: now.Add(diskTimeout)}
	for _, p := range c.copies {
		k.steps[p.Step] = true
	}
	if !c.Holds(commit.Digest) {
		k.steps[commit.Step] = true
		for _, r := range s.Earlier {
			k.steps[r.Step] = true
		}
	}
	return k
}

// Hangs reports whether the disk does not finish an abandoned write.
func (d *disk) Hangs() bool { return len(d.hung) > 0 }

// Unwritten returns the steps of the models that are being written.
func (d *disk) Unwritten() (steps []uint32) {
	for _, w := range d.hung {
		steps = append(steps, w.Step)
	}
	if d.write != nil {
		steps = append(steps, d.write.Step)
	}
	return steps
}

// diskTime returns the time limit for writing a number of bytes.
func diskTime(bytes int) time.Duration {
	return diskTimeout + time.Duration(bytes/slowDisk)*time.Second
}

// later delays the next attempt.
func (d *disk) later(now time.Time) {
	d.pause = min(max(2*d.pause, firstDiskPause), maxDiskPause)
	d.next = now.Add(d.pause)
}

// Pause returns the pause after the newest attempt to write a copy; 0 means that it succeeded.
func (d *disk) Pause() time.Duration { return d.pause }

// put starts to write a copy.
func (c *Copies) put(now time.Time, s *coordinator.State, p Copy, first bool) *Write {
	c.write = &Write{Copy: p, Kept: c.kept(now, s), First: first, until: now.Add(diskTime(Size(*p.Memory)))}
	return c.write
}

// Taking is an intermediate checkpoint that is being taken.
type Taking struct {
	Step  uint32
	Write *Write        // nil: the model is copied
	Limit time.Duration // time limit for lending
}

// Take decides how to take the model after a step. lends reports whether the trainer can lend the
// model. If so and there is a folder, a large model is not copied, but written from the trainer's
// memory while the trainer waits. If the disk does not accept the model in time, the model is
// skipped, and later ones of the epoch are copied.
func (c *Copies) Take(now time.Time, s *coordinator.State, step uint32, lends bool) Taking {
	t := Taking{Step: step, Limit: min(time.Duration(s.Config.MaxRoundTrainTime)*time.Millisecond/lentPart, lentTime)}
	if !lends || !c.Folder || c.Model <= c.Large || c.refused == s.Epoch.StartStep || c.Leaving || c.write != nil || c.Hangs() {
		return t
	}
	c.note(s, step)
	c.size = int(c.Model)
	c.write = &Write{Copy: Copy{Recorded: coordinator.Recorded{Step: step}}, Kept: c.kept(now, s), Lent: true, First: true, until: now.Add(diskTime(c.size))}
	t.Write = c.write
	return t
}

// NotLent records that the disk did not accept a lent model in time.
func (c *Copies) NotLent(s *coordinator.State) { c.refused = s.Epoch.StartStep }

// Written handles the end of a write. wanted reports whether the client still wants the copy. After
// an error the copy stays in memory; a lent model is lost.
func (c *Copies) Written(now time.Time, w *Write, err error, wanted bool) {
	if c.write == w {
		c.write = nil
	}
	c.hung = slices.DeleteFunc(c.hung, func(stuck *Write) bool { return stuck == w })
	switch {
	case w.Lent:
		w.First = false
		if wanted && err == nil {
			c.Add(w.Copy)
		}
		return
	case err != nil:
		c.later(now)
	default:
		c.pause, c.next, w.Memory = 0, time.Time{}, nil
	}
	if w.First {
		c.endWrite(w, wanted)
		return
	}
	for i := range c.copies {
		if c.copies[i].Recorded == w.Recorded {
			c.copies[i].Memory = w.Memory
		}
	}
}

// endWrite adds the copy when its first write ends, or the client stops waiting for it.
func (c *Copies) endWrite(w *Write, wanted bool) {
	if w.First && wanted {
		c.Add(w.Copy)
	}
	w.First = false
}

// Overdue abandons a write that takes too long, and returns it, or nil. The copy stays in memory if
// wanted reports that its task's result is wanted.
func (c *Copies) Overdue(now time.Time, wanted func(task core.ID) bool) *Write {
	w := c.write
	if w == nil || !now.After(w.until) {
		return nil
	}
	c.write, c.hung = nil, append(c.hung, w)
	c.later(now)
	c.endWrite(w, !w.Lent && wanted(w.Task))
	return w
}

// Next starts to write a copy that exists only in memory, if there is one and the disk is free.
func (c *Copies) Next(now time.Time, s *coordinator.State) *Write {
	if !c.Folder || c.hashing || c.write != nil || len(c.hung) > maxHung || now.Before(c.next) {
		return nil
	}
	if p, ok := c.unsaved(s); ok {
		return c.put(now, s, p, false)
	}
	return nil
}

// unsaved returns the newest copy in memory that the run recorded or, if that is on the disk, a
// newer one.
func (c *Copies) unsaved(s *coordinator.State) (found Copy, ok bool) {
	for _, p := range slices.Backward(c.copies) {
		stuck := slices.ContainsFunc(c.hung, func(w *Write) bool { return w.Step == p.Step })
		inMemory := p.Memory != nil && !stuck && p.Facts != (checkpoint.Facts{})
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
