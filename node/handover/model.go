package handover

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
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
	Size     uint64                 // bytes of all parts; 0 when it was trained here
	Seconds  float64                // to load it
	Snapshot checkpoint.Snapshot    // only of models that peers may ask for
	Manifest []byte                 // encoded
	Blobs    [][32]byte             // that are shared for it
	Lent     bool                   // it stays shared until Unshare, though a newer one is
}

// Publish gives the parts of a snapshot to the blob store.
func (m *Model) Publish(put func(data []byte) ([32]byte, error), snapshot checkpoint.Snapshot) error {
	manifest := snapshot.Manifest()
	m.Snapshot, m.Manifest = snapshot, manifest.Encode()
	m.Digest = blake3.Sum256(m.Manifest)
	share := func(data []byte) error {
		hash, err := put(data)
		if err == nil {
			m.Blobs = append(m.Blobs, hash)
		}
		return err
	}
	for _, file := range snapshot.Files {
		if err := share(file.Data); err != nil {
			return fmt.Errorf("share %s: %w", file.Name, err)
		}
	}
	for _, tensor := range snapshot.Tensors {
		if err := share(tensor.Data); err != nil {
			return fmt.Errorf("share %s: %w", tensor.Name, err)
		}
	}
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
