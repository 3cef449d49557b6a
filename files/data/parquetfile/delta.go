package parquetfile

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// deltas iterates over the 32-bit numbers of a DELTA_BINARY_PACKED run.
// (https://parquet.apache.org/docs/file-format/data-pages/encodings/#delta-encoding-delta_binary_packed--5)
type deltas struct {
	left   int    // numbers not read yet
	behind []byte // unread bytes; once left is 0, the bytes that follow the run

	parts, size int // of a block: number of parts, and of numbers in each
	number      int32
	begun       bool
	minimum     int32  // added to each difference of the block
	widths      []byte // of the remaining parts of the block
	part        []byte // differences of the part, of width bits each
	width, at   int    // at: position of the next difference
}

var errDeltas = errors.New("deltas are damaged")

// deltasOf decodes the header of a run. limit is the maximum number of numbers in the run.
func deltasOf(data []byte, limit int) (*deltas, error) {
	var heads [3]uint64
	for i := range heads {
		value, n := binary.Uvarint(data)
		if n <= 0 {
			return nil, errShort
		}
		heads[i], data = value, data[n:]
	}
	first, n := binary.Varint(data)
	if n <= 0 {
		return nil, errShort
	}
	if first != int64(int32(first)) {
		return nil, errDeltas
	}
	block, parts, count := heads[0], heads[1], heads[2]
	if count > uint64(limit) {
		return nil, tooMany(limit)
	}
	if block == 0 || block > 1<<16 || block%128 != 0 || parts == 0 || parts > block || block/parts%32 != 0 {
		return nil, errDeltas
	}
	return &deltas{left: int(count), behind: data[n:], parts: int(parts), size: int(block / parts), number: int32(first)}, nil
}

// next returns the next number; there must be one left.
func (d *deltas) next() (int32, error) {
	d.left--
	if !d.begun { // the first number is in the header
		d.begun = true
		return d.number, nil
	}
	if d.at == 0 {
		if err := d.begin(); err != nil {
			return 0, err
		}
	}
	var difference uint64 // the bytes, up to five, that contain the difference
	bit := d.at * d.width
	for i := (bit + d.width - 1) / 8; d.width > 0 && i >= bit/8; i-- {
		difference = difference<<8 | uint64(d.part[i])
	}
	difference = difference >> (bit % 8) & (1<<d.width - 1)
	d.number += d.minimum + int32(difference)
	d.at = (d.at + 1) % d.size
	return d.number, nil
}

// begin starts a part, and a block if it is the first part of one.
func (d *deltas) begin() error {
	if len(d.widths) == 0 {
		minimum, n := binary.Varint(d.behind)
		if n <= 0 || len(d.behind)-n < d.parts {
			return errShort
		}
		d.minimum, d.widths, d.behind = int32(minimum), d.behind[n:n+d.parts], d.behind[n+d.parts:]
	}
	d.width, d.widths = int(d.widths[0]), d.widths[1:]
	if d.width > 32 {
		return errDeltas
	}
	length := d.size / 8 * d.width
	if length > len(d.behind) {
		return errShort
	}
	d.part, d.behind = d.behind[:length], d.behind[length:]
	return nil
}

// checkLengths returns an error unless the lengths at the start of data fit the texts that follow
// them.
func checkLengths(data []byte, values int) error {
	lengths, err := deltasOf(data, values)
	if err != nil {
		return err
	}
	var all int64
	for lengths.left > 0 {
		length, err := lengths.next()
		if err != nil {
			return err
		}
		if all += int64(length); length < 0 || all > int64(len(data)) {
			return errDeltas
		}
	}
	if all > int64(len(lengths.behind)) {
		return errShort
	}
	return nil
}

// checkShared returns an error if texts that share prefixes with their predecessors unpack to more
// bytes than a page may have.
func checkShared(data []byte, values int) error {
	shared, err := deltasOf(data, values)
	if err != nil {
		return err
	}
	ahead := *shared
	for ahead.left > 0 {
		if _, err := ahead.next(); err != nil {
			return err
		}
	}
	own, err := deltasOf(ahead.behind, values)
	if err != nil {
		return err
	}
	if own.left != shared.left {
		return errDeltas
	}
	var before, all, stored int64
	for own.left > 0 {
		same, sameErr := shared.next()
		more, moreErr := own.next()
		if err := errors.Join(sameErr, moreErr); err != nil {
			return err
		}
		if same < 0 || more < 0 || int64(same) > before {
			return errDeltas
		}
		before = int64(same) + int64(more)
		if all, stored = all+before, stored+int64(more); all > maxPage {
			return fmt.Errorf("texts have more than %d bytes; write smaller pages", maxPage)
		}
	}
	if stored != int64(len(own.behind)) { // the decoder counts from the end
		return errDeltas
	}
	return nil
}
