package frame

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// blockSize is the minimum length in bytes of a piece that a delta copies.
const blockSize = 16

// AppendDelta appends the difference from old to new: the length of new (4 bytes, little endian),
// its SHA-256, and then a list of instructions. Each instruction is a varint n<<1|copied and
// produces n bytes. If copied is 1, the offset of the bytes in old follows as a varint. Otherwise
// the bytes themselves follow. Successive states of a run differ in few places, so their delta is
// much smaller than a state.
func AppendDelta(b, old, new []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(new)))
	hash := sha256.Sum256(new)
	b = append(b, hash[:]...)
	blocks := make(map[[blockSize]byte]int, len(old)/blockSize)
	for at := 0; at+blockSize <= len(old); at += blockSize {
		block := [blockSize]byte(old[at:])
		if _, known := blocks[block]; !known {
			blocks[block] = at
		}
	}
	literal, expected := 0, 0 // start of the literal bytes not yet written; offset in old after the last copy
	for at := 0; at < len(new); {
		from, length := match(old, new[at:], expected, blocks)
		if length < blockSize {
			at, expected = at+1, expected+1
			continue
		}
		b = appendLiteral(b, new[literal:at])
		b = binary.AppendUvarint(b, uint64(length)<<1|1)
		b = binary.AppendUvarint(b, uint64(from))
		at += length
		literal, expected = at, from+length
	}
	return appendLiteral(b, new[literal:])
}

// match finds the start of rest in old: at the expected offset, or at the offset of a known block.
// It returns the offset and the number of equal bytes.
func match(old, rest []byte, expected int, blocks map[[blockSize]byte]int) (from, length int) {
	if expected < len(old) {
		if n := commonPrefix(old[expected:], rest); n >= blockSize {
			return expected, n
		}
	}
	if len(rest) < blockSize {
		return 0, 0
	}
	from, known := blocks[[blockSize]byte(rest)]
	if !known {
		return 0, 0
	}
	return from, commonPrefix(old[from:], rest)
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func appendLiteral(b, literal []byte) []byte {
	if len(literal) == 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(literal))<<1)
	return append(b, literal...)
}

// ApplyDelta returns the result of applying delta to old, at most limit bytes.
func ApplyDelta(old, delta []byte, limit int) ([]byte, error) {
	d := decoder{rest: delta}
	length := int64(d.uint32())
	hash := d.bytes(sha256.Size)
	if d.err == nil && length > int64(limit) {
		return nil, fmt.Errorf("%w: the result of a delta has %d bytes, at most %d are allowed", ErrMalformed, length, limit)
	}
	var made []byte
	for d.err == nil && len(d.rest) > 0 {
		instruction := d.uvarint()
		n := instruction >> 1
		piece := d.rest
		if instruction&1 == 1 {
			from := min(d.uvarint(), uint64(len(old)))
			piece = old[from:]
		}
		if d.err != nil {
			break
		}
		if n == 0 || n > uint64(len(piece)) || int64(n) > length-int64(len(made)) {
			return nil, fmt.Errorf("%w: delta has an invalid copy of %d bytes", ErrMalformed, n)
		}
		made = append(made, piece[:n]...)
		if instruction&1 == 0 {
			d.rest = d.rest[n:]
		}
	}
	if d.err != nil {
		return nil, fmt.Errorf("delta: %w", d.err)
	}
	if got := sha256.Sum256(made); int64(len(made)) != length || !bytes.Equal(got[:], hash) {
		return nil, fmt.Errorf("%w: the result of a delta has a wrong length or hash", ErrMalformed)
	}
	return made, nil
}

func (d *decoder) uint32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	value, n := binary.Uvarint(d.rest)
	if n <= 0 {
		n = len(d.rest) + 1 // truncated, or longer than 64 bits
	}
	d.bytes(n)
	return value
}
