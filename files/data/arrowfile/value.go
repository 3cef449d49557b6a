package arrowfile

import (
	"encoding/binary"
	"fmt"
)

// Null reports whether the value of a row is missing.
func (c *Column) Null(row int) bool {
	return len(c.valid) > 0 && c.valid[row/8]>>(row%8)&1 == 0
}

// Text returns the value of a row of a column of KindText, which is not checked to be UTF-8. It
// is a part of the column.
func (c *Column) Text(row int) ([]byte, error) {
	from, to := c.offset(row), c.offset(row+1)
	if from < 0 || to < from || to > int64(len(c.values)) {
		return nil, fmt.Errorf("%w: a text lies outside its buffer", ErrInvalid)
	}
	return c.values[from:to], nil
}

// List returns the rows of the column within that make up the value of a row of a column of
// KindList.
func (c *Column) List(row int) (from, to int, err error) {
	first, last := c.offset(row), c.offset(row+1)
	if first < 0 || last < first || last > int64(c.Columns[0].Length) {
		return 0, 0, fmt.Errorf("%w: a list lies outside its values", ErrInvalid)
	}
	return int(first), int(last), nil
}

// Int returns the value of a row of a column of KindInt. Values above 2⁶³−1 become negative.
func (c *Column) Int(row int) int64 {
	raw := c.values[row*c.Field.width:]
	switch c.Field.width {
	case 1:
		if c.Field.signed {
			return int64(int8(raw[0]))
		}
		return int64(raw[0])
	case 2:
		number := binary.LittleEndian.Uint16(raw)
		if c.Field.signed {
			return int64(int16(number))
		}
		return int64(number)
	case 4:
		number := binary.LittleEndian.Uint32(raw)
		if c.Field.signed {
			return int64(int32(number))
		}
		return int64(number)
	default:
		return int64(binary.LittleEndian.Uint64(raw))
	}
}

// offset returns where the value of a row begins.
func (c *Column) offset(row int) int64 {
	switch {
	case c.Field.length > 0:
		return int64(row) * int64(c.Field.length)
	case c.Field.width == 8:
		return int64(binary.LittleEndian.Uint64(c.offsets[8*row:]))
	default:
		return int64(int32(binary.LittleEndian.Uint32(c.offsets[4*row:])))
	}
}
