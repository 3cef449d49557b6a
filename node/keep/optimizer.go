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

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/node/env"
)

const (
	// optimizerFolder is in the checkpoint folder, separate from the models, because a momentum
	// belongs to one member only and is not shared.
	optimizerFolder = ".optimizer"
	optimizerSuffix = ".safetensors"

	// Each momentum belongs to one model. The previous one is kept because the run continues from
	// the previous model if members do not agree on the newest.
	keptOptimizers = 2
)

// Optimizer returns the name of this client's file with the momentum for a model of this run, after
// a step and with a digest.
func (f Folder) Optimizer(step uint32, digest [32]byte) string {
	name := fmt.Sprintf("%s%d-%x-%x", checkpointPrefix(f.RunID), step, digest[:], f.ID[:8])
	return filepath.Join(f.Dir, optimizerFolder, name+optimizerSuffix)
}

// SaveOptimizer writes the momentum for a model, for this client's next process, and removes older
// ones. write writes the momentum to a file.
func (f Folder) SaveOptimizer(write func(path string) error, step uint32, digest [32]byte) error {
	path := f.Optimizer(step, digest)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := f.removeTorn(); err != nil {
		return err
	}
	if err := write(path); err != nil {
		return err
	}
	return f.keepOptimizers(keptOptimizers, step)
}

// RestoreOptimizer loads the momentum that an earlier process of this client saved, if it belongs
// to exactly this model. found is false if there is none.
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

// keepOptimizers keeps only the newest files of this run and key up to the step upTo. It first
// removes files of later steps, whose records the run's host has lost.
func (f Folder) keepOptimizers(keep int, upTo uint32) error {
	steps := map[string]int64{}
	names, err := f.optimizers(func(name string) bool {
		step, of := f.optimizerStep(name)
		steps[name] = int64(step)
		if step > uint64(upTo) {
			steps[name] = -1
		}
		return of
	})
	if err != nil {
		return err
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(steps[b], steps[a]) })
	return f.removeOptimizers(names[min(keep, len(names)):])
}

// removeTorn removes a partial file that a killed process of this client left. A client writes one
// at a time.
func (f Folder) removeTorn() error {
	names, err := f.optimizers(func(name string) bool {
		whole, torn := safetensors.Unfinished(name)
		_, of := f.optimizerStep(whole)
		return torn && of
	})
	if err != nil {
		return err
	}
	return f.removeOptimizers(names)
}

// optimizerStep returns the step in a file name from Optimizer, for this run and key.
func (f Folder) optimizerStep(name string) (step uint64, ok bool) {
	id := f.ID
	rest, ours := strings.CutPrefix(name, checkpointPrefix(f.RunID))
	digits, _, _ := strings.Cut(rest, "-")
	step, err := strconv.ParseUint(digits, 10, 32)
	return step, ours && err == nil && strings.HasSuffix(rest, fmt.Sprintf("-%x%s", id[:8], optimizerSuffix))
}

// optimizers returns the matching files of the folder for optimizers.
func (f Folder) optimizers(is func(name string) bool) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(f.Dir, optimizerFolder))
	if err != nil {
		return nil, fmt.Errorf("list optimizer states: %w", err)
	}
	for _, entry := range entries {
		if is(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

func (f Folder) removeOptimizers(names []string) (failed error) {
	for _, name := range names {
		if err := os.Remove(filepath.Join(f.Dir, optimizerFolder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("remove optimizer state: %w", err))
		}
	}
	return failed
}
