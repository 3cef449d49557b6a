package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/record/config"
)

// readHeldOut implements member.Options.HeldOut.
func (t *trainers) readHeldOut(ctx context.Context, run config.Model, of model.Description) ([][]int32, error) {
	c := t.command
	path := c.heldOutData(run)
	if path == "" {
		return nil, nil
	}
	sample, err := local.ReadSample(ctx, path, local.Options{SeqLen: int(run.MaxSeqLen), VocabSize: of.VocabSize}, c.HeldOutSequences)
	switch {
	case err == nil:
	case c.HeldOut != "":
		return nil, fmt.Errorf("--held-out: %w", err)
	default:
		t.logger.Warn("not measuring the held-out loss; name other data with --held-out", "err", err)
		return nil, nil
	}
	t.logger.Info("this client measures the held-out loss at the end of each epoch", "data", path, "sample", sample)
	return sample.Sequences, nil
}

// checkHeldOut opens the data of --held-out and closes it again. The size of the model's vocabulary is not
// known yet.
func (f sourceFlags) checkHeldOut(run config.Model) error {
	if f.HeldOut == "" {
		return nil
	}
	folder, err := local.Open(f.HeldOut, local.Options{SeqLen: int(run.MaxSeqLen), VocabSize: 1})
	if err != nil {
		return fmt.Errorf("--held-out: %w", err)
	}
	return folder.Close()
}

// heldOutData returns the token file or folder with the held-out data of a run, or an empty string if there
// is none.
func (f sourceFlags) heldOutData(run config.Model) string {
	if f.HeldOut != "" {
		return f.HeldOut
	}
	folders := []string{f.DataPath}
	if f.DataPath == "" {
		folders = nil
		for _, location := range run.DataLocations {
			if location.Local != nil && f.AllowLocalPaths {
				folders = append(folders, location.Local.Path)
			}
		}
	}
	for _, folder := range folders {
		path := filepath.Join(folder, manifest.HeldOutFolder)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return path
		}
	}
	return ""
}
