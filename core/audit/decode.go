package audit

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/merkle"
)

// DecodeOpening decodes the output of Encode for these shapes. For any other input it returns an
// error that wraps ErrInvalid. Its memory use is bounded by the shapes and by the length of b.
func DecodeOpening(b []byte, shapes Shapes) (Opening, error) {
	o, err := decodeOpening(b, shapes)
	if err != nil {
		return Opening{}, fmt.Errorf("decode opening: %w", err)
	}
	return o, nil
}

func decodeOpening(b []byte, shapes Shapes) (Opening, error) {
	if err := shapes.validate(); err != nil {
		return Opening{}, err
	}
	if limit := MaxOpeningSize(shapes, MaxChunks); len(b) > limit {
		return Opening{}, fmt.Errorf("%w: %d bytes, at most %d", ErrInvalid, len(b), limit)
	}
	switch {
	case len(b) < openingHeader:
		return Opening{}, fmt.Errorf("%w: %d bytes, the header alone has %d", ErrInvalid, len(b), openingHeader)
	case string(b[:4]) != openingMagic:
		return Opening{}, fmt.Errorf("%w: not an opening: magic %q", ErrInvalid, b[:4])
	case b[4] != openingVersion:
		return Opening{}, fmt.Errorf("%w: version %d, this program reads %d", ErrInvalid, b[4], openingVersion)
	}
	r := reader{bytes: b[5:]}
	o := Opening{Step: r.u32(), Trainer: [32]byte(r.take(32)), Previous: r.u32()}
	count := int(r.u16())
	if count > MaxChunks {
		return Opening{}, fmt.Errorf("%w: %d chunks, at most %d", ErrInvalid, count, MaxChunks)
	}
	leaves := shapes.Chunks()
	for range count {
		c := Opened{Chunk: r.u32()}
		tensor, _, ok := shapes.Find(c.Chunk)
		if !ok {
			return Opening{}, fmt.Errorf("%w: index %d of a chunk, want less than %d", ErrInvalid, c.Chunk, leaves)
		}
		shape, hashes := shapes[tensor], merkle.ProofLength(int(c.Chunk), leaves)
		c.After = r.state(shape, hashes)
		if o.Previous != 0 {
			c.Before = r.state(shape, hashes)
		}
		if r.short {
			return Opening{}, fmt.Errorf("%w: the bytes end in chunk %d", ErrInvalid, c.Chunk)
		}
		o.Chunks = append(o.Chunks, c)
	}
	if len(r.bytes) > 0 {
		return Opening{}, fmt.Errorf("%w: %d bytes after the last chunk", ErrInvalid, len(r.bytes))
	}
	return o, o.check(shapes)
}

// reader decodes fields. A field beyond the end of the bytes is zero, and sets short.
type reader struct {
	bytes []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if len(r.bytes) < n {
		r.short, r.bytes = true, nil
		return nil
	}
	taken := r.bytes[:n]
	r.bytes = r.bytes[n:]
	return taken
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) state(shape Shape, hashes int) State {
	return State{Momentum: r.floats(shape.size()), Taken: r.taken(shape), Path: r.path(hashes)}
}

func (r *reader) floats(n int) []float32 {
	b := r.take(4 * n)
	if b == nil {
		return nil
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return values
}

func (r *reader) taken(shape Shape) Taken {
	n := int(r.u16())
	if n > shape.K {
		r.short = true
		return Taken{}
	}
	if n == 0 {
		return Taken{}
	}
	t := Taken{Indices: make([]uint16, n), Values: make([]float32, n)}
	for i := range n {
		t.Indices[i], t.Values[i] = r.u16(), math.Float32frombits(r.u32())
	}
	return t
}

func (r *reader) path(n int) [][32]byte {
	if n == 0 {
		return nil
	}
	b := r.take(32 * n)
	if b == nil {
		return nil
	}
	path := make([][32]byte, n)
	for i := range path {
		path[i] = [32]byte(b[32*i:])
	}
	return path
}
