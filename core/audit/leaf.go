package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// Taken are the coefficients that were taken out of a chunk to be sent, by index ascending.
type Taken struct {
	Indices []uint16
	Values  []float32
}

// Digest is the SHA-256 of a chunk's momentum: its float32 values, row by row,
// little-endian. SHA-256, since processors have instructions for it, the standard library
// uses them, and a program on a chain can compute it too.
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

// Leaf is what a chunk is in the tree of a step: SHA-256 of the digest of its momentum after
// the step and of what was taken out of it, each as index (uint16) and value (float32),
// little-endian. What was taken is part of it because a result that does not count is given
// back, and of 1-bit results only signs are public.
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
