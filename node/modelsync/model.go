package modelsync

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"lukechampine.com/blake3"
)

// Model is a model that an epoch starts from, or ended with.
type Model struct {
	Digest   [32]byte // of its manifest
	Step     uint32
	Origin   coordinator.Checkpoint // checkpoint for which it was loaded; zero if it was trained here
	Fresh    bool                   // the optimizer has no momentum
	Source   string                 // as in event.Ready
	Fetched  uint64                 // bytes from peers
	Size     uint64                 // bytes of all parts
	Seconds  float64                // time to load it
	Snapshot checkpoint.Snapshot    // only for models that peers may request; without tensors after PutDown
	Manifest []byte                 // encoded
	Blobs    [][32]byte             // shared blobs of the model
	Lent     bool                   // it stays shared until Unshare, even if a newer one is shared
	Dir      string                 // folder that it was read from; empty: another source

	lost *atomic.Bool // a part on the disk cannot be used any more; nil: no part is on the disk
}

// Idle is the number of a model's parts that are hashed concurrently while the trainer is idle, and
// Beside the number during training.
const (
	Idle   = 8
	Beside = 1
)

// Publish hashes the parts of a valid snapshot and lends them to the blob store, at most atOnce at
// the same time.
func (m *Model) Publish(ctx context.Context, tasks *env.Tasks, atOnce int, lend func(data []byte) ([32]byte, error), snapshot checkpoint.Snapshot) error {
	parts := snapshot.Parts()
	m.Blobs = make([][32]byte, len(parts))
	err := tasks.Each(ctx, atOnce, len(parts), func(_ context.Context, i int) (err error) {
		m.Blobs[i], err = lend(parts[i])
		return err
	})
	if err != nil {
		return fmt.Errorf("share the model: %w", err)
	}
	m.Snapshot, m.Manifest = snapshot, snapshot.ManifestOf(m.Blobs).Encode()
	m.Digest, m.Size = blake3.Sum256(m.Manifest), sizeOf(snapshot)
	return nil
}

// sizeOf returns the total size of all parts of a model in bytes.
func sizeOf(s checkpoint.Snapshot) (size uint64) {
	for _, file := range s.Files {
		size += uint64(len(file.Data))
	}
	for _, tensor := range s.Tensors {
		size += uint64(len(tensor.Data))
	}
	return size
}
