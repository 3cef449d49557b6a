package train

import (
	"math"
	"sync"

	"github.com/psyche-go/psyche/core/codec"
	"lukechampine.com/blake3"
)

// maxDecoded bounds the memory for results that were read before they are applied, in bytes.
const maxDecoded = 256 << 20

// decodedResults keeps what Verify has read for Apply, which then has less to do between two
// trainings: Verify runs beside them. What finds no room is read again. It is safe for
// concurrent use.
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

// put keeps a result that was read, if there is room.
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

// get returns what was read from exactly these bytes.
func (d *decodedResults) get(payload []byte) (header codec.Header, tensors []codec.TensorResult, ok bool) {
	hash := blake3.Sum256(payload)
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.entries[hash]
	return entry.header, entry.tensors, ok
}

// forget gives up what was read of a step and those before.
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

// forgetAll gives up everything.
func (d *decodedResults) forgetAll() { d.forget(math.MaxUint32) }
