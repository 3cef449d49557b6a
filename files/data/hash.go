package data

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
)

// Marks before the labels and the positions of a sequence. They are not valid lengths of a
// sequence.
const (
	labelsFollow    = math.MaxUint32
	positionsFollow = math.MaxUint32 - 1
)

// Hash identifies the content of a batch, independent of its source: the SHA-256 of the length of
// each sequence and its tokens, all as 32 bits, little endian. The labels and positions of a
// sequence, if any, follow it in the same encoding, each after a mark that is not a valid length.
func (b Batch) Hash() [sha256.Size]byte {
	h := NewHash()
	h.Add(b)
	return h.Sum()
}

// Hash computes Batch.Hash of a batch that arrives in pieces.
type Hash struct {
	sum     hash.Hash
	scratch []byte
}

// NewHash returns a Hash without sequences.
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

// Sum returns the hash of all added sequences.
func (h *Hash) Sum() [sha256.Size]byte { return [sha256.Size]byte(h.sum.Sum(nil)) }

func appendList(b []byte, list []int32) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
	for _, value := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(value))
	}
	return b
}
