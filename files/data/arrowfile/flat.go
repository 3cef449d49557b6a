package arrowfile

import (
	"encoding/binary"
	"fmt"
)

// flatTable is a table of a FlatBuffer with bounds-checked access.
// (https://flatbuffers.dev/internals/)
type flatTable struct {
	raw    []byte // the whole buffer
	at     int    // offset of the table
	fields []byte // its vtable's field offsets, of two bytes each
}

// errFlat means that the description of a message is damaged.
var errFlat = fmt.Errorf("%w: the header of a message is damaged", ErrInvalid)

// rootTable returns the root table of a buffer.
func rootTable(raw []byte) (flatTable, error) { return tableAt(raw, 0) }

// tableAt returns the table that an offset in the buffer refers to.
func tableAt(raw []byte, at int) (flatTable, error) {
	at, ok := follow(raw, at)
	if !ok || at > len(raw)-4 {
		return flatTable{}, errFlat
	}
	vtable := int64(at) - int64(int32(binary.LittleEndian.Uint32(raw[at:])))
	if vtable < 0 || vtable > int64(len(raw)-4) {
		return flatTable{}, errFlat
	}
	length := int(binary.LittleEndian.Uint16(raw[vtable:]))
	if length < 4 || length > len(raw)-int(vtable) {
		return flatTable{}, errFlat
	}
	return flatTable{raw, at, raw[int(vtable)+4 : int(vtable)+length]}, nil
}

// follow returns the target of an offset.
func follow(raw []byte, at int) (int, bool) {
	if at < 0 || at > len(raw)-4 {
		return 0, false
	}
	to := int64(at) + int64(binary.LittleEndian.Uint32(raw[at:]))
	return int(to), to < int64(len(raw))
}

// field returns the position of a field of size bytes, or 0 if it is absent.
func (t flatTable) field(number, size int) (int, error) {
	if 2*number+2 > len(t.fields) {
		return 0, nil
	}
	offset := int(binary.LittleEndian.Uint16(t.fields[2*number:]))
	if offset == 0 {
		return 0, nil
	}
	if t.at+offset > len(t.raw)-size {
		return 0, errFlat
	}
	return t.at + offset, nil
}

// number returns a signed integer of size bytes, or otherwise if it is absent.
func (t flatTable) number(field, size int, otherwise int64) (int64, error) {
	at, err := t.field(field, size)
	if err != nil || at == 0 {
		return otherwise, err
	}
	switch size {
	case 1:
		return int64(t.raw[at]), nil
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(t.raw[at:]))), nil
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(t.raw[at:]))), nil
	default:
		return int64(binary.LittleEndian.Uint64(t.raw[at:])), nil
	}
}

// table returns a table that a field refers to.
func (t flatTable) table(field int) (inner flatTable, found bool, err error) {
	at, err := t.field(field, 4)
	if err != nil || at == 0 {
		return flatTable{}, false, err
	}
	inner, err = tableAt(t.raw, at)
	return inner, err == nil, err
}

// vector returns the position of a vector's elements, and the number of elements of size bytes.
func (t flatTable) vector(field, size int) (at, length int, err error) {
	at, err = t.field(field, 4)
	if err != nil || at == 0 {
		return 0, 0, err
	}
	at, ok := follow(t.raw, at)
	if !ok || at > len(t.raw)-4 {
		return 0, 0, errFlat
	}
	count := int64(binary.LittleEndian.Uint32(t.raw[at:]))
	if count*int64(size) > int64(len(t.raw)-at-4) {
		return 0, 0, errFlat
	}
	return at + 4, int(count), nil
}

// maxName is the maximum length of a column's name in bytes. It bounds the memory for names,
// because a file can refer to one long name from many columns.
const maxName = 4096

// text returns a string.
func (t flatTable) text(field int) (string, error) {
	at, length, err := t.vector(field, 1)
	if err == nil && length > maxName {
		err = fmt.Errorf("%w: a name has an invalid length of %d bytes", ErrInvalid, length)
	}
	if err != nil {
		return "", err
	}
	return string(t.raw[at : at+length]), nil
}
