package blob

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"lukechampine.com/blake3/guts"
)

const (
	// group is the logarithm of the group size in KiB: Bao hashes groups of 1 KiB << 4 = 16 KiB as
	// one unit. The widest vector instructions also hash this amount at once.
	group     = 4
	groupSize = 1024 << group
	pairSize  = 64 // bytes of a parent: the hashes of its two subtrees
)

// errUnread means that the start of a range could not be read, so that nothing was sent.
var errUnread = errors.New("no byte of the range can be read")

// span is a range of a payload: its offset is a multiple of 16 KiB, its length at most 4 MiB.
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

// The slice of a range consists of the payload's size as uint64, little-endian, the parent hashes on
// the paths to the range, in pre-order, and the bytes of the range. Bao's own format puts the
// parents between the groups. Here all parents come first, so that neither side has to move the
// bytes.

// parentsOf returns the number of parents on the paths to those parts of a range that are in the n
// bytes at pos.
func parentsOf(part span, pos, n uint64) int {
	if n <= groupSize || pos >= part.end() || pos+n <= part.offset {
		return 0
	}
	left := half(n)
	return 1 + parentsOf(part, pos, left) + parentsOf(part, pos+left, n-left)
}

// appendParents appends the parents that parentsOf counts. outboard is in Bao's format: all parents
// in pre-order. parent is the index of the first parent of the subtree of the n bytes at pos.
func appendParents(dst, outboard []byte, part span, parent, pos, n uint64) []byte {
	if n <= groupSize || pos >= part.end() || pos+n <= part.offset {
		return dst
	}
	dst = append(dst, outboard[parent*pairSize:(parent+1)*pairSize]...)
	left := half(n)
	dst = appendParents(dst, outboard, part, parent+1, pos, left)
	return appendParents(dst, outboard, part, parent+left/groupSize, pos+left, n-left)
}

// sendSlice writes prefix and the slice of a range. outboard is the payload's size and its parents
// in pre-order. The error is errUnread if the payload cannot be read and nothing has been written.
func sendSlice(w io.Writer, prefix byte, data io.ReaderAt, outboard []byte, part span) error {
	size := binary.LittleEndian.Uint64(outboard)
	head := make([]byte, 0, 1+8+pairSize*parentsOf(part, 0, size)+oneWrite)
	head = append(append(head, prefix), outboard[:8]...)
	head = appendParents(head, outboard[8:], part, 0, 0, size)
	if part.length <= oneWrite {
		bytes := head[len(head) : len(head)+int(part.length)]
		if err := readFull(data, bytes, part.offset); err != nil {
			return errors.Join(errUnread, err)
		}
		_, err := w.Write(head[:len(head)+len(bytes)])
		return err
	}
	if held, ok := data.(memory); ok {
		if _, err := w.Write(head); err != nil {
			return err
		}
		_, err := w.Write(held[part.offset:part.end()])
		return err
	}
	buf := make([]byte, min(part.length, writeBuffer))
	for pos := part.offset; pos < part.end(); pos += uint64(len(buf)) {
		buf = buf[:min(uint64(len(buf)), part.end()-pos)]
		if err := readFull(data, buf, pos); err != nil {
			if pos == part.offset {
				err = errors.Join(errUnread, err)
			}
			return err
		}
		if pos == part.offset {
			if _, err := w.Write(head); err != nil {
				return err
			}
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

func readFull(data io.ReaderAt, p []byte, pos uint64) error {
	if n, err := data.ReadAt(p, int64(pos)); n < len(p) {
		return fmt.Errorf("read payload: %w", err)
	}
	return nil
}

// decoder verifies the slice of a range in place, as it arrives. Data in the payload's memory is
// valid only after verified was called for it.
type decoder struct {
	r        io.Reader
	part     span              // at most maxRange
	dst      func() []byte     // returns the memory of the range; called when the path to it is verified
	verified func(n int) error // called after n more bytes were verified

	parents []byte      // not yet verified
	groups  [][8]uint32 // verified hashes of the groups of the range
	last    [groupSize]byte
}

// decode decodes a slice without its size field.
func (d *decoder) decode(size uint64, root Hash) error {
	d.parents = make([]byte, pairSize*parentsOf(d.part, 0, size))
	if _, err := io.ReadFull(d.r, d.parents); err != nil {
		return err
	}
	flags := uint32(guts.FlagRoot)
	if err := d.subtree(chainingValue(root[:]), 0, size, flags); err != nil {
		return err
	}
	if size > groupSize {
		flags = 0
	}
	data := d.dst()
	for i, want := range d.groups {
		pos := d.part.offset + uint64(i)*groupSize
		n := min(groupSize, size-pos)
		if err := d.group(data[i*groupSize:][:n], want, pos, flags); err != nil {
			return err
		}
	}
	return nil
}

// subtree verifies the parents of the n bytes at pos.
func (d *decoder) subtree(want [8]uint32, pos, n uint64, flags uint32) error {
	if pos >= d.part.end() || pos+n <= d.part.offset {
		return nil
	}
	if n <= groupSize {
		d.groups = append(d.groups, want)
		return nil
	}
	left, right := chainingValue(d.parents[:32]), chainingValue(d.parents[32:])
	d.parents = d.parents[pairSize:]
	if guts.ChainingValue(guts.ParentNode(left, right, &guts.IV, flags)) != want {
		return errCorrupt
	}
	mid := half(n)
	if err := d.subtree(left, pos, mid, 0); err != nil {
		return err
	}
	return d.subtree(right, pos+mid, n-mid, 0)
}

func (d *decoder) group(data []byte, want [8]uint32, pos uint64, flags uint32) error {
	if _, err := io.ReadFull(d.r, data); err != nil {
		return err
	}
	full := &d.last
	if len(data) == groupSize {
		full = (*[groupSize]byte)(data)
	} else {
		copy(full[:], data)
	}
	node := guts.CompressBuffer(full, len(data), &guts.IV, pos/guts.ChunkSize, 0)
	node.Flags |= flags
	if guts.ChainingValue(node) != want {
		return errCorrupt
	}
	return d.verified(len(data))
}

func chainingValue(b []byte) (cv [8]uint32) {
	for i := range cv {
		cv[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return cv
}
