package arrowfile

import (
	"encoding/binary"
	"fmt"
)

// Null reports whether the value of a row is null.
func (c *Column) Null(row int) bool {
	return c.Field.Kind == KindNull || c.nulls || len(c.valid) > 0 && c.valid[row/8]>>(row%8)&1 == 0
}

// Text returns the value of a row in a column of KindText. It does not check for valid UTF-8. The
// result shares the column's memory.
func (c *Column) Text(row int) ([]byte, error) {
	if c.Field.views() {
		return c.view(c.values[viewSize*row : viewSize*row+viewSize])
	}
	from, to := c.offset(row), c.offset(row+1)
	if from < 0 || to < from || to > int64(len(c.values)) {
		return nil, fmt.Errorf("%w: a text extends beyond its buffer", ErrInvalid)
	}
	return c.values[from:to], nil
}

// List returns the rows of the child column that hold the list in the given row. The column must be
// of KindList.
func (c *Column) List(row int) (from, to int, err error) {
	first := c.offset(row)
	var last int64
	if c.Field.kind == typeListView || c.Field.kind == typeLargeListView {
		length := integer(c.values, row, c.Field.width, true)
		if length < 0 || length > int64(c.Columns[0].Length) {
			return 0, 0, fmt.Errorf("%w: a list extends beyond its values", ErrInvalid)
		}
		last = first + length
	} else {
		last = c.offset(row + 1)
	}
	if first < 0 || last < first || last > int64(c.Columns[0].Length) {
		return 0, 0, fmt.Errorf("%w: a list extends beyond its values", ErrInvalid)
	}
	return int(first), int(last), nil
}

// viewSize is the size of a view in bytes: 4 for the length of the text, and 12 for the text if it
// fits. A longer text is represented by its first 4 bytes, the number of its buffer (4), and its
// offset in that buffer (4).
const viewSize = 16

// view returns the text of a view.
func (c *Column) view(raw []byte) ([]byte, error) {
	length := int64(int32(binary.LittleEndian.Uint32(raw)))
	if length >= 0 && length <= viewSize-4 {
		return raw[4 : 4+length], nil
	}
	number, from := binary.LittleEndian.Uint32(raw[8:]), int64(binary.LittleEndian.Uint32(raw[12:]))
	if length < 0 || uint64(number) >= uint64(len(c.texts)) || from+length > int64(len(c.texts[number])) {
		return nil, fmt.Errorf("%w: a text extends beyond its buffer", ErrInvalid)
	}
	return c.texts[number][from : from+length], nil
}

// Int returns the value of a row in a column of KindInt. Values above 2⁶³−1 become negative.
func (c *Column) Int(row int) int64 { return integer(c.values, row, c.Field.width, c.Field.signed) }

// integer returns an integer from a buffer of integers of width bytes.
func integer(of []byte, at, width int, signed bool) int64 {
	raw := of[at*width:]
	switch width {
	case 1:
		if signed {
			return int64(int8(raw[0]))
		}
		return int64(raw[0])
	case 2:
		number := binary.LittleEndian.Uint16(raw)
		if signed {
			return int64(int16(number))
		}
		return int64(number)
	case 4:
		number := binary.LittleEndian.Uint32(raw)
		if signed {
			return int64(int32(number))
		}
		return int64(number)
	default:
		return int64(binary.LittleEndian.Uint64(raw))
	}
}

// offset returns the start of a row's value.
func (c *Column) offset(row int) int64 {
	if c.Field.length > 0 {
		return int64(row) * int64(c.Field.length)
	}
	return integer(c.offsets, row, c.Field.width, true)
}
