package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
)

// saveAgreed saves the model of an epoch when the run has left the epoch's Cooldown. One
// that the run's quorum did not report is no checkpoint of the run.
func (n *Node) saveAgreed() {
	m := n.unsaved
	if m == nil || n.state.RunState == coordinator.Cooldown {
		return
	}
	n.unsaved = nil
	if c := n.state.Model.Checkpoint; fromPeers(c) && c.Step == m.step && c.Digest != m.digest {
		n.log.Warn("checkpoint is not saved: the run recorded another one", "step", m.step, "digest", hexOf(m.digest)[:16])
		return
	}
	n.save(m)
}

// save writes the model to the checkpoint folder, beside the work of the loop.
func (n *Node) save(m *heldModel) {
	report := event.Checkpoint{Epoch: n.state.Progress.Epoch, Step: m.step, Digest: hexOf(m.digest)}
	if n.CheckpointDir == "" {
		n.emit(report)
		return
	}
	n.saves++
	dir, prefix := n.CheckpointDir, checkpointPrefix(n.RunID)
	report.Dir = n.folderOf(m.step)
	facts, known := n.facts(m)
	n.spawn(func(context.Context) func() {
		removeUnfinished(dir, prefix, n.log)
		var beside []checkpoint.Extra
		if known {
			beside = append(beside, facts.Extra())
		}
		err := writeCheckpoint(report.Dir, m.snapshot, beside...)
		if err == nil && known && n.Saved != nil {
			n.Saved(report.Dir, facts)
		}
		var pruneErr error
		if err == nil && n.KeepCheckpoints > 0 {
			pruneErr = pruneCheckpoints(dir, prefix, n.KeepCheckpoints)
		}
		return func() {
			n.saves--
			n.saveErr = err
			if pruneErr != nil {
				n.log.Warn("remove old checkpoints", "err", pruneErr)
			}
			if err != nil {
				n.log.Error("save checkpoint", "dir", report.Dir, "err", err)
				report.Dir = ""
			}
			n.emit(report)
		}
	})
}

// errOtherCheckpoint says that a checkpoint would take the place of a different one.
var errOtherCheckpoint = errors.New("the folder holds another checkpoint")

// writeCheckpoint writes a snapshot to a folder whose parent may not exist yet. What the
// folder holds already is left alone: the same checkpoint is not written again, and any
// other is an error, as it belongs to another run of the same name.
func writeCheckpoint(dir string, s checkpoint.Snapshot, beside ...checkpoint.Extra) error {
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		held, err := checkpoint.ReadDir(dir)
		if err == nil && held.Manifest().Digest() == s.Manifest().Digest() {
			return nil
		}
		return errors.Join(fmt.Errorf("save checkpoint %s: %w; choose another checkpoint folder or move it away", dir, errOtherCheckpoint), err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("save checkpoint: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return checkpoint.WriteDir(dir, s, beside...)
}

// checkpointPrefix is the beginning of the names of a run's checkpoint folders: the run
// id, with what has no place in a file name replaced.
func checkpointPrefix(runID string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, runID)
	return safe + "-step"
}

// removeUnfinished removes what a client that was killed has left of the run's checkpoints.
func removeUnfinished(dir, prefix string, log *slog.Logger) {
	err := checkpoint.RemoveUnfinished(dir, func(name string) bool {
		_, ok := stepOf(name, prefix)
		return ok
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("clean up the checkpoint folder", "err", err)
	}
}

// stepOf returns the step in the name of a checkpoint folder of the run.
func stepOf(name, prefix string) (step uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	step, err := strconv.ParseUint(digits, 10, 32)
	return step, ok && err == nil && digits == strconv.FormatUint(step, 10)
}

// pruneCheckpoints removes all but the newest checkpoints of a run. A folder that holds
// anything but a checkpoint is left alone.
func pruneCheckpoints(dir, prefix string, keep int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list checkpoints: %w", err)
	}
	type saved struct {
		name string
		step uint64
	}
	var found []saved
	for _, entry := range entries {
		if step, ok := stepOf(entry.Name(), prefix); ok && entry.IsDir() {
			found = append(found, saved{entry.Name(), step})
		}
	}
	slices.SortFunc(found, func(a, b saved) int { return cmp.Compare(b.step, a.step) })
	var failed error
	for _, old := range found[min(keep, len(found)):] {
		path := filepath.Join(dir, old.name)
		err := checkpoint.CheckTarget(path)
		if err == nil {
			err = os.RemoveAll(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("remove checkpoint %s: %w", path, err))
		}
	}
	return failed
}
