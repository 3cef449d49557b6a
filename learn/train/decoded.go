package train

import (
	"math"
	"sync"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/core/codec"
)

// maxDecoded is the maximum memory for decoded results that are not applied yet, in bytes.
const maxDecoded = 256 << 20

// decodedResults keeps results that Verify has decoded, so that Apply need not decode them. Verify
// runs concurrently with training, but Apply runs between two trainings. Results that do not fit
// are decoded again. It is safe for concurrent use.
type decodedResults struct {
	room int // bytes

	mu      sync.Mutex
	used    int
	entries map[[32]byte]decodedResult // by the BLAKE3 hash of the payload
}

type decodedResult struct {
	header  codec.Header
	tensors []codec.TensorResult
	size    int
}

// put stores a decoded result, if it fits.
func (d *decodedResults) put(payload []byte, header codec.Header, tensors []codec.TensorResult) {
	hash, size := blake3.Sum256(payload), 0
	for _, t := range tensors {
		size += 2*len(t.Counts) + 2*len(t.Indices) + 4*len(t.Values) + len(t.Units)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.entries[hash]; known || d.used+size > d.room {
		return
	}
	if d.entries == nil {
		d.entries = make(map[[32]byte]decodedResult)
	}
	d.entries[hash] = decodedResult{header, tensors, size}
	d.used += size
}

// get returns the decoded result of exactly these bytes.
func (d *decodedResults) get(payload []byte) (header codec.Header, tensors []codec.TensorResult, ok bool) {
	hash := blake3.Sum256(payload)
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.entries[hash]
	return entry.header, entry.tensors, ok
}

// forget drops the results of a step and of earlier steps.
func (d *decodedResults) forget(until uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for hash, entry := range d.entries {
		if entry.header.Step <= until {
			d.used -= entry.size
			delete(d.entries, hash)
		}
	}
}

// forgetAll drops all results.
func (d *decodedResults) forgetAll() { d.forget(math.MaxUint32) }
