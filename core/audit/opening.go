package audit

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/merkle"
)

const (
	openingMagic   = "PSYO"
	openingVersion = 2
)

// Opening contains chunks of a trainer's momentum before and after a step.
type Opening struct {
	Step    uint32
	Trainer [32]byte
	// Previous is the step of the result from which the momentum continues. 0 means that the
	// momentum started as zeros.
	Previous uint32
	Chunks   []Opened
}

// Opened is one chunk of an opening.
type Opened struct {
	Chunk  uint32
	After  State
	Before State // zero if Previous is 0
}

// State is a chunk of the momentum after a step, with the proof that its trainer committed to it.
type State struct {
	Momentum []float32
	Taken    Taken
	Path     [][32]byte
}

// MaxOpeningSize returns the maximum size in bytes of an opening with a number of chunks.
func MaxOpeningSize(shapes Shapes, chunks int) int {
	largest, deepest := 0, 32*merkle.ProofLength(0, shapes.Chunks())
	for _, s := range shapes {
		largest = max(largest, 2*(4*s.size()+2+6*s.K+deepest))
	}
	return openingHeader + chunks*(4+largest)
}

const openingHeader = 4 + 1 + 4 + 32 + 4 + 2

// Encode returns the bytes of an opening:
//
//	"PSYO" ‖ version u8 = 2 ‖ step u32 ‖ trainer [32] ‖ previous u32 ‖ chunks u16, then for each
//	chunk u32 ‖ after ‖ before, unless previous is 0
//
// after and before each contain the values of the momentum, the taken coefficients, and the path to
// the root. The taken coefficients are a count (u16) and that many pairs of index (u16) and value.
// The shapes determine the numbers of values and hashes. Integers and values are little-endian. The
// roots in the results determine these bytes uniquely, so an opening from any source equals the
// trainer's opening.
func (o Opening) Encode(shapes Shapes) ([]byte, error) {
	if err := o.check(shapes); err != nil {
		return nil, fmt.Errorf("encode opening: %w", err)
	}
	b := append([]byte(openingMagic), openingVersion)
	b = binary.LittleEndian.AppendUint32(b, o.Step)
	b = append(b, o.Trainer[:]...)
	b = binary.LittleEndian.AppendUint32(b, o.Previous)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(o.Chunks)))
	for _, c := range o.Chunks {
		b = binary.LittleEndian.AppendUint32(b, c.Chunk)
		b = appendState(b, c.After)
		if o.Previous != 0 {
			b = appendState(b, c.Before)
		}
	}
	return b, nil
}

func appendState(b []byte, s State) []byte {
	for _, v := range s.Momentum {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	b = s.Taken.appendTo(binary.LittleEndian.AppendUint16(b, uint16(len(s.Taken.Indices))))
	for _, hash := range s.Path {
		b = append(b, hash[:]...)
	}
	return b
}

// check reports what is invalid in an opening for these shapes.
func (o Opening) check(shapes Shapes) error {
	if err := shapes.validate(); err != nil {
		return err
	}
	switch {
	case o.Previous != 0 && o.Previous >= o.Step:
		return fmt.Errorf("%w: step %d continues from step %d", ErrInvalid, o.Step, o.Previous)
	case len(o.Chunks) < 1 || len(o.Chunks) > MaxChunks:
		return fmt.Errorf("%w: %d chunks, want 1 to %d", ErrInvalid, len(o.Chunks), MaxChunks)
	}
	for i, c := range o.Chunks {
		if i > 0 && c.Chunk <= o.Chunks[i-1].Chunk {
			return fmt.Errorf("%w: chunk %d after chunk %d", ErrInvalid, c.Chunk, o.Chunks[i-1].Chunk)
		}
		if err := o.checkChunk(c, shapes); err != nil {
			return fmt.Errorf("chunk %d: %w", c.Chunk, err)
		}
	}
	return nil
}

func (o Opening) checkChunk(c Opened, shapes Shapes) error {
	tensor, _, ok := shapes.Find(c.Chunk)
	if !ok {
		return fmt.Errorf("%w: the model has %d chunks", ErrInvalid, shapes.Chunks())
	}
	shape, hashes := shapes[tensor], merkle.ProofLength(int(c.Chunk), shapes.Chunks())
	if err := c.After.check(shape, hashes); err != nil {
		return fmt.Errorf("after: %w", err)
	}
	if o.Previous == 0 {
		if len(c.Before.Momentum)+len(c.Before.Taken.Indices)+len(c.Before.Path) != 0 {
			return fmt.Errorf("%w: unexpected state before the first step", ErrInvalid)
		}
		return nil
	}
	if err := c.Before.check(shape, hashes); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	return nil
}

func (s State) check(shape Shape, hashes int) error {
	if len(s.Momentum) != shape.size() || len(s.Path) != hashes {
		return fmt.Errorf("%w: %d values and %d hashes, want %d and %d", ErrInvalid, len(s.Momentum), len(s.Path), shape.size(), hashes)
	}
	for i, v := range s.Momentum {
		if !finite(v) {
			return fmt.Errorf("%w: value %d of the momentum is %v", ErrInvalid, i, v)
		}
	}
	return s.Taken.check(shape)
}

func (t Taken) check(shape Shape) error {
	if len(t.Indices) != len(t.Values) || len(t.Indices) > shape.K {
		return fmt.Errorf("%w: %d indices and %d values taken, want equal numbers up to %d", ErrInvalid, len(t.Indices), len(t.Values), shape.K)
	}
	previous := -1
	for i, index := range t.Indices {
		if int(index) <= previous || int(index) >= shape.size() {
			return fmt.Errorf("%w: index %d after %d in a chunk of %d", ErrInvalid, index, previous, shape.size())
		}
		previous = int(index)
		if v := t.Values[i]; !finite(v) || v == 0 {
			return fmt.Errorf("%w: value %v taken", ErrInvalid, v)
		}
	}
	return nil
}

func finite(v float32) bool { return math.Abs(float64(v)) <= math.MaxFloat32 }
