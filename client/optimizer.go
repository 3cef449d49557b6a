package client

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
)

// OptimizerKeeper is a Trainer whose optimizer can survive a restart of the process.
type OptimizerKeeper interface {
	// SaveOptimizer writes the momentum to a file, in one step. Everything that was
	// trained has been applied.
	SaveOptimizer(ctx context.Context, path string) error
	// LoadOptimizer continues from a file that was saved together with the model that is
	// loaded. When it returns an error the optimizer is as before.
	LoadOptimizer(ctx context.Context, path string) error
}

const (
	opKeep = "keep optimizer"

	// optimizerFolder is in the checkpoint folder, apart from the models: momentum is of
	// one member only and is not for others.
	optimizerFolder = ".optimizer"
	optimizerSuffix = ".safetensors"

	// The newest, and the one before: without an agreed checkpoint the run goes on from
	// the last model but one.
	keptOptimizers = 2
)

// optimizerFile names the momentum that belongs to a model of this run: of this key, after
// that step, with that digest.
func (o *Options) optimizerFile(step uint32, digest [32]byte) string {
	id := o.Key.ID()
	name := fmt.Sprintf("%s%d-%s-%x", checkpointPrefix(o.RunID), step, hexOf(digest), id[:8])
	return filepath.Join(o.CheckpointDir, optimizerFolder, name+optimizerSuffix)
}

// keepOptimizer writes the momentum that belongs to the model which was just taken, for
// this client's next process. The model is shared and reported meanwhile; the next epoch
// waits for the trainer.
func (n *Node) keepOptimizer(m *heldModel) {
	keeper, ok := n.trainer.(OptimizerKeeper)
	if !ok || n.CheckpointDir == "" {
		return
	}
	path := n.optimizerFile(m.step, m.digest)
	n.start(opKeep, 0, func(ctx context.Context) func() {
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = keeper.SaveOptimizer(ctx, path)
		}
		if err == nil {
			err = n.pruneOptimizers()
		}
		return func() {
			if err != nil {
				n.log.Warn("the optimizer's state is not kept for a restart", "step", m.step, "err", err)
			}
		}
	})
}

// pruneOptimizers removes all but the newest files of this run and key.
func (o *Options) pruneOptimizers() error {
	id := o.Key.ID()
	prefix, suffix := checkpointPrefix(o.RunID), fmt.Sprintf("-%x%s", id[:8], optimizerSuffix)
	dir := filepath.Join(o.CheckpointDir, optimizerFolder)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list optimizer states: %w", err)
	}
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
	var failed error
	for _, name := range names[min(keptOptimizers, len(names)):] {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("remove optimizer state: %w", err))
		}
	}
	return failed
}

// restoreOptimizer takes up the momentum that an earlier process of this client kept, if
// it belongs to exactly the model that was loaded. Otherwise the optimizer begins afresh.
func (o *obtaining) restoreOptimizer(ctx context.Context) {
	keeper, ok := o.trainer.(OptimizerKeeper)
	if !ok || o.CheckpointDir == "" || !fromPeers(o.checkpoint) || o.known != nil {
		return
	}
	path := o.optimizerFile(o.checkpoint.Step, o.checkpoint.Digest)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := keeper.LoadOptimizer(ctx, path); err != nil {
		o.log.Warn("the optimizer begins afresh: its saved state cannot be used", "path", path, "err", err)
		return
	}
	o.model.fresh = false
	o.log.Info("the optimizer goes on where it was", "step", o.checkpoint.Step)
}
