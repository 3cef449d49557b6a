package modelsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// FromDisk is the Source of a model from the client's own checkpoint folder.
const FromDisk = "disk"

// disk is the source of models in the client's own checkpoint folder.
type disk struct{}

func (d disk) model(ctx context.Context, a *Attempt) (checkpoint.Snapshot, bool, error) {
	snapshot, err := d.read(ctx, a)
	if err != nil && !errors.Is(err, checkpoint.ErrNoFacts) {
		a.Log.Warn("the saved checkpoint cannot be used: asking members", "err", err)
	}
	return snapshot, true, err
}

// read reads the model from the checkpoint folder if it was saved there.
func (disk) read(ctx context.Context, a *Attempt) (checkpoint.Snapshot, error) {
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
