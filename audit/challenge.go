package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/psyche-go/psyche/assign"
)

const (
	// DefaultChunks are opened in an audit: who cheats on a tenth of the chunks has none of
	// them among so many once in 29 audits.
	DefaultChunks = 32
	// MaxChunks bounds what anybody opens at a time.
	MaxChunks = 64
)

// saltTargets keeps this shuffle apart from those that package assign draws of a seed.
const saltTargets = "audit"

// Target returns which of the trainers of a round a verifier audits: both are positions in
// ascending lists. The seed is that of the round after, which nobody knew when results were
// committed to. Of every second verifiers the second one audits the trainer of the one before
// with a probability of doublePercent, so that two that audited the same can be compared.
// Without trainers, or for who is no verifier, it is −1.
func Target(seed uint64, verifier, verifiers, trainers, doublePercent int) int {
	if verifier < 0 || verifier >= verifiers || trainers < 1 {
		return -1
	}
	if verifier%2 == 1 && newStream("double", seed, 0, [32]byte{byte(verifier), byte(verifier >> 8)}).below(100) < uint64(max(doublePercent, 0)) {
		verifier--
	}
	return int(assign.Position(uint32(verifier%trainers), uint32(trainers), seed, saltTargets))
}

// Chunks draws which chunks of a trainer's momentum are opened, ascending. A chunk is as
// likely as it is large.
func Chunks(seed uint64, step uint32, trainer [32]byte, shapes Shapes, count int) []uint32 {
	elements := uint64(0)
	for _, t := range shapes {
		elements += uint64(t.Chunks) * uint64(t.size())
	}
	count = min(count, MaxChunks, shapes.Chunks())
	s := newStream("chunks", seed, step, trainer)
	drawn := make([]uint32, 0, max(count, 0))
	for len(drawn) < count {
		chunk := shapes.at(s.below(elements))
		if at, found := slices.BinarySearch(drawn, chunk); !found {
			drawn = slices.Insert(drawn, at, chunk)
		}
	}
	return drawn
}

// at returns the chunk of the element with that number.
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

// stream is what a seed says about a question: SHA-256 of the question and a counter.
type stream struct {
	message [sha256.Size + 8]byte
	counter uint64
	block   [sha256.Size]byte
	used    int
}

func newStream(question string, seed uint64, step uint32, about [32]byte) *stream {
	b := append([]byte("psyche/audit/v1/"), question...)
	b = binary.LittleEndian.AppendUint64(b, seed)
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

// below draws a number from 0 to n−1, each as likely as the other.
func (s *stream) below(n uint64) uint64 {
	for {
		high, low := bits.Mul64(s.next(), n)
		if low >= -n%n {
			return high
		}
	}
}
