package blob

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"

	"lukechampine.com/blake3/guts"
)

const (
	// group is Bao's name for 1 KiB << 4 = 16 KiB hashed as one unit, which is also what
	// the widest vector instructions hash at once.
	group     = 4
	groupSize = 1024 << group
	pairSize  = 64 // bytes of a parent: the hashes of its two subtrees
)

// span is a range of a payload: a multiple of 16 KiB, then at most 4 MiB.
type span struct{ offset, length uint64 }

func (s span) end() uint64 { return s.offset + s.length }

// half returns the size of the left subtree of a payload of n > 16 KiB bytes: the largest
// power of two below n (BLAKE3 paper, section 2.1).
func half(n uint64) uint64 { return 1 << (bits.Len64(n-1) - 1) }

// memory is a payload in memory.
type memory []byte

func (m memory) ReadAt(p []byte, offset int64) (int, error) {
	if offset > int64(len(m)) {
		return 0, io.EOF
	}
	n := copy(p, m[offset:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// encoder writes the slice of a range. The library's own reads the whole tree for every
// range and copies every group.
type encoder struct {
	w        io.Writer
	data     io.ReaderAt
	outboard []byte // size as uint64, then the parents in pre-order
	part     span
	buf      []byte // for payloads on disk
}

func encodeSlice(w io.Writer, data io.ReaderAt, outboard []byte, part span) error {
	size := binary.LittleEndian.Uint64(outboard)
	if _, err := w.Write(outboard[:8]); err != nil {
		return err
	}
	e := encoder{w: w, data: data, outboard: outboard[8:], part: part}
	return e.subtree(0, 0, size)
}

// subtree writes what the range needs of the n bytes at pos, whose first parent is the
// one with that index.
func (e *encoder) subtree(parent, pos, n uint64) error {
	if pos >= e.part.end() || pos+n <= e.part.offset {
		return nil
	}
	if n <= groupSize {
		return e.group(pos, n)
	}
	if _, err := e.w.Write(e.outboard[parent*pairSize : (parent+1)*pairSize]); err != nil {
		return err
	}
	left := half(n)
	if err := e.subtree(parent+1, pos, left); err != nil {
		return err
	}
	return e.subtree(parent+left/groupSize, pos+left, n-left)
}

func (e *encoder) group(pos, n uint64) error {
	if held, ok := e.data.(memory); ok {
		_, err := e.w.Write(held[pos : pos+n])
		return err
	}
	if e.buf == nil {
		e.buf = make([]byte, groupSize)
	}
	if got, err := e.data.ReadAt(e.buf[:n], int64(pos)); uint64(got) < n {
		return fmt.Errorf("read payload: %w", err)
	}
	_, err := e.w.Write(e.buf[:n])
	return err
}

// decoder verifies the slice of a range as it arrives, in place: what is in the memory of
// the payload counts only after verified was told.
type decoder struct {
	r        io.Reader
	part     span
	dst      func() []byte     // memory of the range, taken when the path to it is verified
	verified func(n int) error // so many bytes more are right
	pair     [pairSize]byte
	last     [groupSize]byte // a group that is not full
}

// decode reads a slice without its size field.
func (d *decoder) decode(size uint64, root Hash) error {
	return d.subtree(chainingValue(root[:]), 0, size, guts.FlagRoot)
}

func (d *decoder) subtree(want [8]uint32, pos, n uint64, flags uint32) error {
	if pos >= d.part.end() || pos+n <= d.part.offset {
		return nil
	}
	if n <= groupSize {
		return d.group(want, pos, n, flags)
	}
	if _, err := io.ReadFull(d.r, d.pair[:]); err != nil {
		return err
	}
	left, right := chainingValue(d.pair[:32]), chainingValue(d.pair[32:])
	if guts.ChainingValue(guts.ParentNode(left, right, &guts.IV, flags)) != want {
		return ErrCorrupt
	}
	mid := half(n)
	if err := d.subtree(left, pos, mid, 0); err != nil {
		return err
	}
	return d.subtree(right, pos+mid, n-mid, 0)
}

func (d *decoder) group(want [8]uint32, pos, n uint64, flags uint32) error {
	start := pos - d.part.offset
	data := d.dst()[start : start+n]
	if _, err := io.ReadFull(d.r, data); err != nil {
		return err
	}
	full := &d.last
	if n == groupSize {
		full = (*[groupSize]byte)(data)
	} else {
		copy(full[:], data)
	}
	node := guts.CompressBuffer(full, int(n), &guts.IV, pos/guts.ChunkSize, 0)
	node.Flags |= flags
	if guts.ChainingValue(node) != want {
		return ErrCorrupt
	}
	return d.verified(int(n))
}

func chainingValue(b []byte) (cv [8]uint32) {
	for i := range cv {
		cv[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return cv
}
