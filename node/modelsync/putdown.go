package modelsync

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"sync/atomic"

	"github.com/psyche-go/psyche/files/checkpoint"
	"lukechampine.com/blake3"
)

// PutDown drops the in-memory copy of a shared model, if the model is large. If dir is not empty, it
// is a folder of this client with the model, and the blob store reads the parts from there. If dir
// is empty, the blob store keeps each part where it is: in its own folder, or in memory.
func (m *Models) PutDown(model *Model, dir string) {
	if model.Size <= m.Large {
		return
	}
	shared := m.Shared(model.Digest) == model
	if shared {
		model.Snapshot.Tensors = nil
	}
	if !shared || dir == "" || model.lost != nil {
		m.options.Tasks.Spawn(GiveBack)
		return
	}
	file := &Model{lost: new(atomic.Bool)}
	model.lost = file.lost // set if one of the parts on the disk is lost later
	m.options.Tasks.Spawn(func(ctx context.Context) func() {
		err := m.options.Tasks.AtDisk(func() error { return m.PublishFrom(ctx, file, Beside, dir) })
		return func() {
			switch {
			case err == nil && file.Digest != model.Digest:
				err = fmt.Errorf("%w: %s has a different model", checkpoint.ErrInvalid, dir)
				fallthrough
			case err != nil:
				m.options.Log.Warn("cannot share the model from its folder", "dir", dir, "step", model.Step, "err", err)
			}
			m.store.Drop(file.Blobs...) // except blobs of models that are shared
			m.options.Tasks.Spawn(GiveBack)
		}
	})
}

// InFolder records that a folder of this client now contains a model.
func (m *Models) InFolder(digest [32]byte, dir string) {
	if model := m.Shared(digest); model != nil {
		m.PutDown(model, dir)
	}
}

// PublishFrom is Publish for a model in a folder. The tensors of a large model stay in the folder.
// They are available while they are lent, even after the folder was removed. If the disk later
// returns different data, PublishFrom logs this and the model is no longer shared.
func (m *Models) PublishFrom(ctx context.Context, model *Model, atOnce int, dir string) error {
	opened, err := checkpoint.OpenDir(dir)
	if err != nil {
		return err
	}
	model.Size = 0
	for _, file := range opened.Files {
		model.Size += uint64(len(file.Data))
	}
	for _, data := range opened.Data {
		model.Size += uint64(data.Size())
	}
	if model.Size <= m.Large {
		snapshot, err := checkpoint.ReadDir(dir)
		if err != nil {
			return err
		}
		return model.Publish(ctx, m.options.Tasks, atOnce, m.options.Network.Lend, snapshot)
	}
	if model.lost == nil {
		model.lost = new(atomic.Bool)
	}
	network, files := m.options.Network, len(opened.Files)
	lost := model.lost
	lend := func(data *io.SectionReader) ([32]byte, error) {
		return network.LendFrom(data, func(err error) {
			if !lost.Swap(true) {
				m.options.Log.Error("no longer sharing a model: its file was changed, or the disk cannot read it", "dir", dir, "step", opened.Step, "err", err)
			}
		})
	}
	model.Blobs = make([][32]byte, files+len(opened.Data))
	err = m.options.Tasks.Each(ctx, atOnce, len(model.Blobs), func(ctx context.Context, i int) (err error) {
		switch {
		case ctx.Err() != nil: // stop here, because the disk may be slow in each of the other calls
			return ctx.Err()
		case i < files:
			model.Blobs[i], err = network.Lend(opened.Files[i].Data)
		default:
			model.Blobs[i], err = lend(opened.Data[i-files])
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("share the model: %w", err)
	}
	model.Snapshot = checkpoint.Snapshot{Step: opened.Step, Files: opened.Files}
	model.Manifest = opened.ManifestOf(model.Blobs).Encode()
	model.Digest = blake3.Sum256(model.Manifest)
	return nil
}

// read returns a shared model with its tensors.
func (o *Options) read(ctx context.Context, m *Model) (checkpoint.Snapshot, error) {
	if len(m.Snapshot.Tensors) > 0 {
		return m.Snapshot, nil
	}
	manifest, err := checkpoint.DecodeManifest(m.Manifest)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	return manifest.Assemble(func(hash [32]byte, size uint64) ([]byte, error) { return o.Network.Fetch(ctx, hash, size, nil) })
}

// GiveBack is a task that returns the memory of a large, unused copy to the operating system. Go
// would otherwise keep that memory for its own heap, but the gradients are outside of it.
func GiveBack(context.Context) func() {
	debug.FreeOSMemory()
	return func() {}
}
