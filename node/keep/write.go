package keep

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// errOtherCheckpoint means that a checkpoint would replace a different one.
var errOtherCheckpoint = errors.New("the folder has a different checkpoint")

// writeCheckpoint writes a snapshot to a folder whose parent may not exist yet. It does not change
// an existing folder. If that folder contains the same checkpoint, there is nothing to write; any
// other content is an error, because it belongs to another run of the same name.
func writeCheckpoint(dir string, s checkpoint.Snapshot, beside ...checkpoint.Extra) error {
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		held, err := checkpoint.ReadDir(dir)
		if err == nil && held.Manifest().Digest() == s.Manifest().Digest() {
			return nil
		}
		return errors.Join(fmt.Errorf("save checkpoint %s: %w; choose another checkpoint folder, or move this one away", dir, errOtherCheckpoint), err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("save checkpoint: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return checkpoint.WriteDir(dir, s, beside...)
}

// removeUnfinished removes partial checkpoints of the run that a killed client left.
func removeUnfinished(dir, prefix string, log *slog.Logger) {
	err := checkpoint.RemoveUnfinished(dir, func(name string) bool {
		_, ok := stepOf(strings.TrimSuffix(name, pendingSuffix), prefix)
		_, commit := stepOf(name, strings.TrimSuffix(prefix, "step")+"commit")
		return ok || commit
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("cannot clean up the checkpoint folder", "err", err)
	}
}

// forgottenSuffix is the suffix of a checkpoint that a different checkpoint of the same step replaced.
// The run's host has lost its records of the old checkpoint, or it is from another run of the same name.
const forgottenSuffix = ".forgotten"

// putAside renames a folder that contains a different model of a step, so that the recorded
// checkpoint of that step can have its name.
func putAside(dir string) error {
	aside := dir + forgottenSuffix
	if _, err := os.Lstat(aside); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put %s aside: %s already exists", dir, aside)
	}
	return os.Rename(dir, aside)
}

// pruneCheckpoints keeps only the newest checkpoints of a run up to the step upTo, and the
// checkpoint of step spare. Checkpoints of later steps exist if the run's host lost its records.
// It does not remove a folder with other files.
func pruneCheckpoints(dir, prefix string, keep int, upTo, spare uint32) error {
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
		if step, ok := stepOf(entry.Name(), prefix); ok && entry.IsDir() && step <= uint64(upTo) {
			found = append(found, saved{entry.Name(), step})
		}
	}
	slices.SortFunc(found, func(a, b saved) int { return cmp.Compare(b.step, a.step) })
	var failed error
	for _, old := range found[min(keep, len(found)):] {
		if old.step == uint64(spare) {
			continue
		}
		failed = errors.Join(failed, checkpoint.RemoveDir(filepath.Join(dir, old.name)))
	}
	return failed
}
