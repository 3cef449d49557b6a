package keep

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// pendingSuffix is the suffix of a folder with a model that is not yet known to be the run's.
const pendingSuffix = ".pending"

// A member reports its model at the end of an epoch after it has written the model to the disk, but
// it waits at most longestAhead for the disk. Except in the last epoch, it also waits at most
// 1/aheadPart of the time since the previous model, so that epochs do not get noticeably longer.
const (
	longestAhead = 30 * time.Second
	aheadPart    = 100
)

// LongestAhead returns the maximum time that the end of an epoch waits for the disk.
func LongestAhead(s *coordinator.State) time.Duration {
	return min(longestAhead, time.Duration(s.Config.CooldownTime)*time.Millisecond/2)
}

// pending is a model that is written to the disk before it is known to be the run's.
type pending struct {
	step  uint32
	since time.Time // start of its report's wait
	begun bool
	done  bool
	then  *attempt // saves it in its final place, once it is on the disk
}

// Ahead reports whether the client may report its model of the epoch's end to the run. All members
// continue from a model that a quorum reported. If all of them were killed right after the reports,
// the model would be lost unless it was on the disk before. A disk that is full, slow, or busy with
// an earlier model delays the report, but does not prevent it. In the last epoch the delay may be
// longer, because no member waits to train, and no later model replaces this one.
func (k *Saver) Ahead(s *coordinator.State) bool {
	m := k.unsaved
	if m == nil || k.Folder.Dir == "" || s.RunState != coordinator.Cooldown {
		return true
	}
	p := k.pending
	if p == nil || p.step != m.Step {
		p = &pending{step: m.Step, since: k.Tasks.Now()}
		k.pending = p
	}
	if !p.begun && len(k.writing) == 0 {
		p.begun = true
		k.putAhead(p, m, s)
	}
	limit := LongestAhead(s)
	if s.Progress.Step <= s.Config.TotalSteps {
		limit = min(limit, k.took/aheadPart)
	}
	return p.done || k.Tasks.Now().Sub(p.since) >= limit
}

// putAhead writes the model to a separate folder, concurrently with the loop.
func (k *Saver) putAhead(p *pending, m *Model, s *coordinator.State) {
	facts, _ := factsOf(m, s)
	facts.Epoch++ // the run records the model after the epoch is over
	dir := k.Folder.Pending(m.Step)
	k.writing = append(k.writing, m)
	k.Tasks.Spawn(func(context.Context) func() {
		err := k.Tasks.AtDisk(func() error { return writeCheckpoint(dir, m.Snapshot, facts.Extra()) })
		return func() {
			k.wrote(m)
			p.done = true
			if err != nil {
				k.Log.Warn("reporting a model that is not yet on the disk", "step", m.Step, "err", err)
			}
			if then := p.then; then != nil {
				p.then = nil // so that the model can be removed from memory once it is saved
				k.save(then)
			}
		}
	})
}

// ahead returns the model of a step that is already being written to the disk, or nil.
func (k *Saver) ahead(step uint32) *pending {
	if p := k.pending; p != nil && p.step == step && p.begun && !p.done {
		return p
	}
	return nil
}

// Pending returns the folder of a model that is not yet known to be the run's.
func (f Folder) Pending(step uint32) string { return f.Checkpoint(step) + pendingSuffix }

// Find returns the folder with the checkpoint of a step that has the digest. If the checkpoint was
// written before it was known to be the run's, Find moves it to its final place.
func (f Folder) Find(step uint32, digest [32]byte) (dir string, err error) {
	dir = f.Checkpoint(step)
	facts, err := checkpoint.ReadFacts(dir)
	if err == nil && facts.Digest == hex.EncodeToString(digest[:]) {
		return dir, nil
	}
	if f.promote(step, digest) {
		return dir, nil
	}
	if err == nil {
		err = fmt.Errorf("%s has a different model of the step", dir)
	}
	return "", err
}

// promote moves a pending or intermediate checkpoint to its final place, if it has the digest and
// the place is free.
func (f Folder) promote(step uint32, digest [32]byte) bool {
	for _, from := range []string{f.Pending(step), f.Intermediate(step)} {
		facts, err := checkpoint.ReadFacts(from)
		if err == nil && facts.Digest == hex.EncodeToString(digest[:]) {
			return os.Rename(from, f.Checkpoint(step)) == nil && syncFolder(f.Dir) == nil
		}
	}
	return false
}

// place moves a pending checkpoint to its final place, unless that exists.
func (f Folder) place(step uint32, digest [32]byte) error {
	dir := f.Checkpoint(step)
	if _, err := f.Find(step, digest); err == nil {
		return nil
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s: %w; choose another checkpoint folder, or move this one away", dir, errOtherCheckpoint)
	}
	return fmt.Errorf("the stored model is missing: %s", f.Pending(step))
}

// clean removes pending checkpoints up to a step. A later one may be the next epoch's only copy.
func (k *Saver) clean(step uint32) {
	if err := k.Folder.dropPending(step); err != nil {
		k.Log.Warn("cannot clean up the checkpoint folder", "err", err)
	}
}

// dropPending removes the run's pending checkpoints up to a step: they are in their final place, or
// are not checkpoints of the run.
func (f Folder) dropPending(upTo uint32) error {
	entries, err := os.ReadDir(f.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list checkpoints: %w", err)
	}
	var failed error
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), pendingSuffix)
		if step, ours := stepOf(name, checkpointPrefix(f.RunID)); !ok || !ours || step > uint64(upTo) {
			continue
		}
		failed = errors.Join(failed, checkpoint.RemoveDir(filepath.Join(f.Dir, entry.Name())))
	}
	return failed
}
