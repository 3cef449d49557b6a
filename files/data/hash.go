package data

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
)

// Marks before the labels and the positions of a sequence. No sequence is as long.
const (
	labelsFollow    = math.MaxUint32
	positionsFollow = math.MaxUint32 - 1
)

// Hash names what a batch holds, whatever it was read from: the SHA-256 of the length of each
// sequence and its tokens, all of 32 bits, little endian. Where there are labels or positions,
// those of a sequence follow it in the same way, each after a mark that is no length.
func (b Batch) Hash() [sha256.Size]byte {
	h := NewHash()
	h.Add(b)
	return h.Sum()
}

// Hash is Batch.Hash of a batch that comes in pieces.
type Hash struct {
	sum     hash.Hash
	scratch []byte
}

// NewHash returns the hash of nothing yet.
func NewHash() *Hash { return &Hash{sum: sha256.New()} }

// Add adds the next sequences of the batch.
func (h *Hash) Add(b Batch) {
	for i, sequence := range b.Sequences {
		h.scratch = appendList(h.scratch[:0], sequence)
		if b.Labels != nil {
			h.scratch = appendList(binary.LittleEndian.AppendUint32(h.scratch, labelsFollow), b.Labels[i])
		}
		if b.Positions != nil {
			h.scratch = appendList(binary.LittleEndian.AppendUint32(h.scratch, positionsFollow), b.Positions[i])
		}
		_, _ = h.sum.Write(h.scratch)
	}
}

// Sum returns the hash of all sequences that were added.
func (h *Hash) Sum() [sha256.Size]byte { return [sha256.Size]byte(h.sum.Sum(nil)) }

func appendList(b []byte, list []int32) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
	for _, value := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(value))
	}
	return b
}
