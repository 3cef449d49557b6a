package handover

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"lukechampine.com/blake3"
)

// Model is a model with a digest: the one an epoch starts from, or ended with.
type Model struct {
	Digest   [32]byte // of its manifest
	Step     uint32
	Origin   coordinator.Checkpoint // it was loaded for; zero when it was trained here
	Fresh    bool                   // the optimizer has no momentum
	Source   string                 // as event.Ready says it
	Fetched  uint64                 // bytes from peers
	Size     uint64                 // bytes of all parts
	Seconds  float64                // to load it
	Snapshot checkpoint.Snapshot    // only of models that peers may ask for; without tensors when they have to be read (PutDown)
	Manifest []byte                 // encoded
	Blobs    [][32]byte             // that are shared for it
	Lent     bool                   // it stays shared until Unshare, though a newer one is
	Dir      string                 // folder that it was read from; empty: it came otherwise

	lost *atomic.Bool // a part that lay on the disk cannot be used any more; nil: none lies there
}

// How many parts of a model are hashed at once: while nothing is trained, and beside a training.
const (
	Idle   = 8
	Beside = 1
)

// Publish lends the parts of a valid snapshot to the blob store, each of which is hashed once, so many at once.
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

// sizeOf returns the bytes of all parts of a model.
func sizeOf(s checkpoint.Snapshot) (size uint64) {
	for _, file := range s.Files {
		size += uint64(len(file.Data))
	}
	for _, tensor := range s.Tensors {
		size += uint64(len(tensor.Data))
	}
	return size
}
