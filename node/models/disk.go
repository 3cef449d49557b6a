package models

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
)

// Copy is a copy of an intermediate checkpoint: the model after a step of the running epoch.
type Copy struct {
	coordinator.Recorded
	Memory *checkpoint.Snapshot // nil: it is on the disk
	Facts  checkpoint.Facts     // zero: unknown, because the model is from another member
}

// Size returns the bytes of a model's tensors.
func Size(s checkpoint.Snapshot) (size int) {
	for _, tensor := range s.Tensors {
		size += len(tensor.Data)
	}
	return size
}

// isRecorded reports whether the run has recorded a model.
func isRecorded(s *coordinator.State, r coordinator.Recorded) bool {
	c := s.Model.Checkpoint
	return r == s.Epoch.Commit || c.FromPeers() && r.Digest == c.Digest || slices.Contains(s.Earlier, r)
}

// inRound reports whether a round is running.
func inRound(s *coordinator.State) bool {
	return s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness
}

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

// disk decides about writes of copies to the disk, one at a time. A copy that cannot be written
// stays in memory, and is written when the disk has space or responds again.
type disk struct {
	write *Write        // nil: no write in progress
	hung  []*Write      // abandoned but not finished
	Pause time.Duration // after the newest attempt, if that failed; zero: it succeeded
	next  time.Time     // earliest time of the next attempt after a failure
}

// Write is one write of a copy to the disk.
type Write struct {
	Copy
	Kept          // folders that stay; the write first removes the others
	Task  core.ID // set by the caller
	Lent  bool    // the model is lent, not copied; after the write the caller sets Digest and Facts
	First bool    // the client does not have the copy before it is written
	until time.Time
}

// Kept selects the folders of intermediate checkpoints that stay when a client removes old folders.
type Kept struct {
	steps       map[uint32]bool
	from, until uint32    // also from <= step < until
	all         time.Time // from then on all folders stay, because further models may have been written
}

// Keeps reports whether the folder of a step stays. A disk may execute a removal late.
func (k *Kept) Keeps(now time.Time, step uint32) bool {
	return k.steps[step] || step >= k.from && step < k.until || !now.Before(k.all)
}

// Hangs reports whether an abandoned write has not finished.
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
	d.Pause = min(max(2*d.Pause, firstDiskPause), maxDiskPause)
	d.next = now.Add(d.Pause)
}
