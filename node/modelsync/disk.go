package modelsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// FromDisk is the Source of a model from the client's own checkpoint folder.
const FromDisk = "disk"

// fromDisk gets a model from the client's own checkpoint folder.
func (a *Attempt) fromDisk(ctx context.Context) (checkpoint.Snapshot, bool, error) {
	snapshot, err := a.readSaved(ctx)
	if err != nil && !errors.Is(err, checkpoint.ErrNoFacts) {
		a.Log.Warn("the saved checkpoint cannot be used: asking members", "err", err)
	}
	return snapshot, true, err
}

// readSaved reads the model from the checkpoint folder if it was saved there.
func (a *Attempt) readSaved(ctx context.Context) (checkpoint.Snapshot, error) {
	if a.Folder.Dir == "" {
		return checkpoint.Snapshot{}, checkpoint.ErrNoFacts
	}
	c, find := a.checkpoint(), a.Folder.Find
	if a.Running {
		find = a.Folder.FindIntermediate
	}
	dir, err := find(c.Step, c.Digest)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	snapshot, err := checkpoint.ReadDir(dir)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	if err := a.adopt(ctx, snapshot, FromDisk); err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("%s: %w", dir, err)
	}
	a.Model.Dir = dir
	return a.Model.Snapshot, nil
}
