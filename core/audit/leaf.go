package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// Taken contains the coefficients that were taken out of a chunk to be sent, in ascending order of
// their indices.
type Taken struct {
	Indices []uint16
	Values  []float32
}

// Digest is the SHA-256 of a chunk's momentum: its float32 values, row by row, little-endian.
// SHA-256 is used because processors have instructions for it, the standard library uses them, and
// a program on a chain can also compute it.
func Digest(momentum []float32) [32]byte {
	const block = 1024
	var buffer [4 * block]byte
	h := sha256.New()
	for len(momentum) > 0 {
		n := min(block, len(momentum))
		for i, v := range momentum[:n] {
			binary.LittleEndian.PutUint32(buffer[4*i:], math.Float32bits(v))
		}
		h.Write(buffer[:4*n])
		momentum = momentum[n:]
	}
	return [32]byte(h.Sum(nil))
}

// Leaf returns the leaf of a chunk in the tree of a step: the SHA-256 of the digest of its momentum
// after the step, followed by the taken coefficients, each as index (uint16) and value (float32),
// little-endian. The taken coefficients are included because they are added back if the result does
// not count, and because only the signs of 1-bit results are public.
func Leaf(digest [32]byte, taken Taken) [32]byte {
	return sha256.Sum256(taken.appendTo(append(make([]byte, 0, 32+6*len(taken.Indices)), digest[:]...)))
}

func (t Taken) appendTo(b []byte) []byte {
	for i, index := range t.Indices {
		b = binary.LittleEndian.AppendUint16(b, index)
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(t.Values[i]))
	}
	return b
}
