package keep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/node/env"
)

const (
	// optimizerFolder is in the checkpoint folder, apart from the models: momentum is of
	// one member only and is not for others.
	optimizerFolder = ".optimizer"
	optimizerSuffix = ".safetensors"

	// The newest, and the one before: without an agreed checkpoint the run goes on from
	// the last model but one.
	keptOptimizers = 2
)

// Optimizer names the file of the momentum that belongs to a model of this run: of this
// client, after that step, with that digest.
func (f Folder) Optimizer(step uint32, digest [32]byte) string {
	name := fmt.Sprintf("%s%d-%x-%x", checkpointPrefix(f.RunID), step, digest[:], f.ID[:8])
	return filepath.Join(f.Dir, optimizerFolder, name+optimizerSuffix)
}

// SaveOptimizer writes the momentum that belongs to a model, which write puts into a file, for this client's next
// process, and removes older ones.
func (f Folder) SaveOptimizer(write func(path string) error, step uint32, digest [32]byte) error {
	path := f.Optimizer(step, digest)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := f.removeUnfinished(); err != nil {
		return err
	}
	if err := write(path); err != nil {
		return err
	}
	return f.keepOptimizers(keptOptimizers)
}

// RestoreOptimizer takes up the momentum that an earlier process of this client kept, if it
// belongs to exactly this model. Found is false when there is none.
func (f Folder) RestoreOptimizer(ctx context.Context, trainer env.OptimizerSaver, step uint32, digest [32]byte) (found bool, err error) {
	path := f.Optimizer(step, digest)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := trainer.LoadOptimizer(ctx, path); err != nil {
		return true, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// ours matches the names of this run's and key's files.
func (f Folder) ours() (prefix, suffix string) {
	return checkpointPrefix(f.RunID), fmt.Sprintf("-%x%s", f.ID[:8], optimizerSuffix)
}

// removeUnfinished removes what processes that were killed as they wrote have left.
func (f Folder) removeUnfinished() error {
	prefix, suffix := f.ours()
	return f.removeOptimizers(func(name string) bool {
		return strings.HasPrefix(name, "."+prefix) && strings.Contains(name, suffix+".")
	})
}

// keepOptimizers removes all but the newest files of this run and key.
func (f Folder) keepOptimizers(keep int) error {
	entries, err := os.ReadDir(filepath.Join(f.Dir, optimizerFolder))
	if err != nil {
		return fmt.Errorf("list optimizer states: %w", err)
	}
	prefix, suffix := f.ours()
	steps := map[string]uint64{}
	var names []string
	for _, entry := range entries {
		rest, ours := strings.CutPrefix(entry.Name(), prefix)
		digits, _, _ := strings.Cut(rest, "-")
		step, err := strconv.ParseUint(digits, 10, 32)
		if ours && err == nil && strings.HasSuffix(rest, suffix) {
			steps[entry.Name()] = step
			names = append(names, entry.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(steps[b], steps[a]) })
	old := names[min(keep, len(names)):]
	return f.removeOptimizers(func(name string) bool { return slices.Contains(old, name) })
}

// removeOptimizers removes files of optimizers by name.
func (f Folder) removeOptimizers(unwanted func(name string) bool) error {
	dir := filepath.Join(f.Dir, optimizerFolder)
	entries, failed := os.ReadDir(dir)
	for _, entry := range entries {
		if unwanted(entry.Name()) {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = errors.Join(failed, fmt.Errorf("remove optimizer state: %w", err))
			}
		}
	}
	return failed
}
