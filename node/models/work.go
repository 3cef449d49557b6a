package models

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
)

// While a large model is written from the trainer's memory, the trainer waits for at most
// 1/lentPart of the time that members have to train a round, and at most lentTime.
const (
	lentPart = 10
	lentTime = 10 * time.Second
)

// Hash is a copy that is being hashed.
type Hash struct {
	Copy        // the caller sets Digest and Facts
	Urgent bool // no training is running, and other members wait
	taken  *coordinator.State
}

// Hash starts to hash a copy of the model after a step. It returns nil if there is nothing to hash.
func (c *Copies) Hash(s *coordinator.State, step uint32, taken checkpoint.Snapshot) *Hash {
	if c.Busy() || c.Has(step) {
		return nil
	}
	c.note(s, step)
	c.hashing, c.Bytes = true, Size(taken)
	return &Hash{Copy: Copy{Recorded: coordinator.Recorded{Step: step}, Memory: &taken}, Urgent: c.Leaving, taken: s}
}

// Hashed ends the hashing of a copy, and keeps the copy if ok: on the disk if there is a folder and
// the disk accepts it, else in memory. It returns the write to start, or nil.
func (c *Copies) Hashed(now time.Time, h *Hash, ok bool) *Write {
	c.hashing = false
	if !ok {
		return nil
	}
	var w *Write
	if c.Folder && c.Finished() && !c.Hangs() {
		w = c.put(now, h.taken, h.Copy, !c.Leaving)
	}
	if w == nil || !w.First {
		c.Add(h.Copy)
	}
	return w
}

// note records that the model after a step is being taken.
func (c *Copies) note(s *coordinator.State, step uint32) {
	if core.Answers(s, step, c.Answered) {
		c.Answered = step
	}
	if c.first == 0 {
		c.first = step
	}
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

// put starts to write a copy.
func (c *Copies) put(now time.Time, s *coordinator.State, p Copy, first bool) *Write {
	c.write = &Write{Copy: p, Kept: c.kept(now, s), First: first, until: now.Add(diskTime(Size(*p.Memory)))}
	return c.write
}

// LendTime returns the maximum time for which the trainer lends its model.
func LendTime(s *coordinator.State) time.Duration {
	return min(time.Duration(s.Config.MaxRoundTrainTime)*time.Millisecond/lentPart, lentTime)
}

// Take decides how to take the model after a step. lends reports whether the trainer can lend the
// model. If so and there is a folder, a large model is not copied, but written from the trainer's
// memory while the trainer waits: Take returns this write. If the disk does not accept the model in
// time, the model is skipped, and later ones of the epoch are copied. Take returns nil for a copy.
func (c *Copies) Take(now time.Time, s *coordinator.State, step uint32, lends bool) *Write {
	if !lends || !c.Folder || c.Model <= c.Large || c.refused == s.Epoch.StartStep || c.Leaving || c.write != nil || c.Hangs() {
		return nil
	}
	c.note(s, step)
	c.Bytes = int(c.Model)
	c.write = &Write{Copy: Copy{Recorded: coordinator.Recorded{Step: step}}, Kept: c.kept(now, s), Lent: true, First: true, until: now.Add(diskTime(c.Bytes))}
	return c.write
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
		c.Pause, c.next, w.Memory = 0, time.Time{}, nil
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
