package auditor

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// errNotKept means that a result is no longer kept here, or never was.
var errNotKept = errors.New("not kept here")

// payloadStore stores the bytes of results in memory, and in files if they do not fit there. It has no
// size limit, because audits need all results of the kept rounds.
type payloadStore struct {
	parent string // parent folder of the files; empty: the folder for temporary files
	limit  uint64 // maximum bytes in memory

	mu   sync.Mutex
	dir  string // created on first use
	used uint64
	of   map[[32]byte]*storedPayload
}

// storedPayload is the data stored for one hash.
type storedPayload struct {
	data   []byte // nil: in a file
	owners int    // number of put calls minus the number of drop calls
}

// newPayloadStore returns an empty store. parent is the folder in which it creates its own folder
// on first use; empty: the folder for temporary files.
func newPayloadStore(parent string, limit uint64) *payloadStore {
	return &payloadStore{parent: parent, limit: limit, of: make(map[[32]byte]*storedPayload)}
}

// put stores data until drop. The caller must not modify data afterwards.
func (d *payloadStore) put(hash [32]byte, data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.of[hash]; known != nil {
		known.owners++
		return nil
	}
	if d.used+uint64(len(data)) > d.limit {
		if err := d.write(hash, data); err != nil {
			return fmt.Errorf("keep a result of %d bytes for audits: %w", len(data), err)
		}
		data = nil
	}
	d.used += uint64(len(data))
	d.of[hash] = &storedPayload{data: data, owners: 1}
	return nil
}

// Get returns the data with a hash.
func (d *payloadStore) Get(hash [32]byte) ([]byte, error) {
	d.mu.Lock()
	known, dir := d.of[hash], d.dir
	d.mu.Unlock()
	switch {
	case known == nil:
		return nil, fmt.Errorf("result %x: %w", hash[:4], errNotKept)
	case known.data != nil:
		return known.data, nil
	}
	data, err := os.ReadFile(filepath.Join(dir, hex.EncodeToString(hash[:])))
	if err != nil {
		return nil, fmt.Errorf("result %x: %w: %w", hash[:4], errNotKept, err)
	}
	return data, nil
}

// drop releases data.
func (d *payloadStore) drop(hashes ...[32]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, hash := range hashes {
		known := d.of[hash]
		if known == nil {
			continue
		}
		if known.owners--; known.owners > 0 {
			continue
		}
		delete(d.of, hash)
		d.used -= uint64(len(known.data))
		if known.data == nil {
			_ = os.Remove(filepath.Join(d.dir, hex.EncodeToString(hash[:]))) // Close removes what is left
		}
	}
}

// Close removes all files.
func (d *payloadStore) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dir == "" {
		return nil
	}
	clear(d.of)
	return os.RemoveAll(d.dir)
}

// payloadPattern is the name pattern of the stores' folders.
const payloadPattern = "audited-results-*"

// sweep removes the folders that the stores of killed processes of one client left in parent.
func sweep(parent string) error {
	left, err := filepath.Glob(filepath.Join(parent, payloadPattern))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

func (d *payloadStore) write(hash [32]byte, data []byte) (err error) {
	if d.dir == "" {
		if d.parent != "" {
			if err := os.MkdirAll(d.parent, 0o700); err != nil {
				return err
			}
		}
		if d.dir, err = os.MkdirTemp(d.parent, payloadPattern); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(d.dir, hex.EncodeToString(hash[:])), data, 0o600)
}
