package models

import (
	"cmp"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Copies contains a client's copies of intermediate checkpoints, so that the run can fall back to a
// model of the running epoch. Package core decides which models to take. The copies are the checkpoint
// that enough members reported, and newer models that they may still report. A copy is on the disk if
// the client has a folder, else in memory.
//
// Take and Hash start work, and so do the methods that return a Write. The caller does the work and
// passes the result to NotLent, Hashed or Written.
type Copies struct {
	Folder   bool   // the client has a folder
	Large    uint64 // larger models are not copied, but written from the trainer's memory
	Model    uint64 // bytes of the model that the epoch continues from
	Bytes    int    // size of the newest copied or lent model
	Answered uint32 // newest step after which a model was taken because a member that left reported it
	Leaving  bool   // the client is leaving: it reports a model before the model is on the disk

	copies  []Copy // in ascending order of steps
	hashing bool
	refused uint32 // first step of an epoch in which large models are copied, because the disk did not accept one in time; 0: none
	dropped uint32 // step of the intermediate checkpoint before which folders were removed
	first   uint32 // step of the first copy that this process took; 0: none
	disk
}

// Busy reports whether a model is being hashed, or written for the first time.
func (c *Copies) Busy() bool { return c.hashing || c.write != nil && c.write.First }

// Finished reports whether no model is being hashed or written.
func (c *Copies) Finished() bool { return !c.hashing && c.write == nil }

// Add adds a copy unless there is already one of its step.
func (c *Copies) Add(added Copy) {
	if c.Has(added.Step) {
		return
	}
	c.copies = append(c.copies, added)
	slices.SortFunc(c.copies, func(a, b Copy) int { return cmp.Compare(a.Step, b.Step) })
}

// Has reports whether there is a copy of the model after a step.
func (c *Copies) Has(step uint32) bool {
	return slices.ContainsFunc(c.copies, func(p Copy) bool { return p.Step == step })
}

// Find returns the copy with a digest.
func (c *Copies) Find(digest [32]byte) (found Copy, ok bool) {
	i := slices.IndexFunc(c.copies, func(p Copy) bool { return p.Digest == digest })
	if i < 0 {
		return found, false
	}
	return c.copies[i], true
}

// Holds reports whether there is a copy with a digest.
func (c *Copies) Holds(digest [32]byte) bool {
	_, ok := c.Find(digest)
	return ok
}

// OnDisk returns the step of the newest copy on the disk that the run can continue from; 0: none.
func (c *Copies) OnDisk(s *coordinator.State) (step uint32) {
	for _, p := range c.copies {
		if p.Memory == nil && s != nil && isRecorded(s, p.Recorded) {
			step = p.Step
		}
	}
	return step
}

// Abandon drops the copies that the run has not recorded. It is called when this client is
// desynchronised, because its weights, and thus these models, may be wrong.
func (c *Copies) Abandon(s *coordinator.State) {
	c.copies = slices.DeleteFunc(c.copies, func(p Copy) bool { return !isRecorded(s, p.Recorded) })
}

// Trim drops copies that are no longer needed. shared reports whether this client shares the run's
// checkpoint. If folders of the disk are no longer needed, Trim returns the folders to keep, else
// nil.
func (c *Copies) Trim(now time.Time, s *coordinator.State, shared bool) *Kept {
	commit, checkpoint := s.Epoch.Commit, s.Model.Checkpoint
	shared = shared && checkpoint.FromPeers()
	running := inRound(s) || s.RunState == coordinator.Cooldown
	newest := len(c.copies) - 1
	kept := c.copies[:0]
	for i, p := range c.copies {
		switch {
		case p.Step >= s.Progress.Step: // the host lost its records of this step
			continue
		case p.Recorded == commit, running && i >= newest-1 && p.Step > commit.Step && p.Step >= s.Epoch.StartStep:
		case isRecorded(s, p.Recorded) && (!shared || p.Step > checkpoint.Step) && (i == newest || commit.Step == 0):
		default:
			continue
		}
		kept = append(kept, p)
	}
	clear(c.copies[len(kept):])
	c.copies = kept
	if !c.Folder || commit.Step == 0 || commit.Step == c.dropped || !c.Holds(commit.Digest) {
		return nil
	}
	c.dropped = commit.Step
	return &Kept{steps: map[uint32]bool{checkpoint.Step: true}, from: commit.Step, until: ^uint32(0), all: now.Add(diskTimeout)}
}

// Unreported returns the newest model that this client holds but has not reported to the run.
func (c *Copies) Unreported(s *coordinator.State, me *coordinator.Client) (found coordinator.Recorded, ok bool) {
	for _, p := range slices.Backward(c.copies) {
		if p.Step < s.Epoch.StartStep || p.Step >= s.Progress.Step {
			continue
		}
		if p.Recorded == s.Epoch.Commit && me.HoldsEarlier != p.Step || p.Step > max(me.Report.Step, s.Epoch.Commit.Step) {
			return p.Recorded, true
		}
	}
	return found, false
}
