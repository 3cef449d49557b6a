package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
)

const (
	// DefaultChunks is the number of chunks that an audit opens. If a tenth of a result's chunks is
	// false, one audit in 29 opens only correct ones.
	DefaultChunks = 32
	// MaxChunks is the maximum number of chunks in one opening.
	MaxChunks = 64
)

// Chunks draws the chunks of a trainer's momentum to open, in ascending order. Up to half of them
// come from the low-support chunks, in which few other trainers sent values. The rest come from all
// chunks, with a probability proportional to their size. All auditors of a result draw the same
// chunks.
func Chunks(seed [32]byte, step uint32, trainer [32]byte, shapes Shapes, count int, lowSupport []uint32) []uint32 {
	elements := uint64(0)
	for _, t := range shapes {
		elements += uint64(t.Chunks) * uint64(t.size())
	}
	count = min(count, MaxChunks, shapes.Chunks())
	s := newStream("chunks", seed, step, trainer)
	drawn := make([]uint32, 0, max(count, 0))
	draw := func(until int, next func() uint32) {
		for len(drawn) < until {
			chunk := next()
			if at, found := slices.BinarySearch(drawn, chunk); !found {
				drawn = slices.Insert(drawn, at, chunk)
			}
		}
	}
	draw(min(count/2, len(lowSupport)), func() uint32 { return lowSupport[s.below(uint64(len(lowSupport)))] })
	draw(count, func() uint32 { return shapes.at(s.below(elements)) })
	return drawn
}

// at returns the chunk that contains the element with the given number, counted over all tensors.
func (s Shapes) at(element uint64) uint32 {
	first := uint32(0)
	for _, t := range s {
		size := uint64(t.size())
		if element < uint64(t.Chunks)*size {
			return first + uint32(element/size)
		}
		element -= uint64(t.Chunks) * size
		first += uint32(t.Chunks)
	}
	return first - 1
}

// stream is a pseudorandom stream: the SHA-256 of a key and a counter. The key is a hash of the
// purpose (question), the seed and the subject.
type stream struct {
	message [sha256.Size + 8]byte
	counter uint64
	block   [sha256.Size]byte
	used    int
}

func newStream(question string, seed [32]byte, step uint32, about [32]byte) *stream {
	b := append([]byte("psyche/audit/v2/"), question...)
	b = append(b, seed[:]...)
	b = binary.LittleEndian.AppendUint32(b, step)
	key := sha256.Sum256(append(b, about[:]...))
	s := &stream{used: sha256.Size}
	copy(s.message[:], key[:])
	return s
}

func (s *stream) next() uint64 {
	if s.used == sha256.Size {
		binary.LittleEndian.PutUint64(s.message[sha256.Size:], s.counter)
		s.block, s.used = sha256.Sum256(s.message[:]), 0
		s.counter++
	}
	v := binary.LittleEndian.Uint64(s.block[s.used:])
	s.used += 8
	return v
}

// below draws a number from 0 to n−1, uniformly.
func (s *stream) below(n uint64) uint64 {
	for {
		high, low := bits.Mul64(s.next(), n)
		if low >= -n%n {
			return high
		}
	}
}
