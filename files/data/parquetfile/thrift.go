package parquetfile

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Types of Thrift's compact protocol
// (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// Limits of Thrift structures, so that decoding takes less than a gigabyte.
const (
	maxElements = 1 << 20 // of all lists, sets and maps together
	maxNesting  = 32
)

var errShort = errors.New("truncated within a structure")

// walker skips over a structure in the compact protocol without storing it.
type walker struct {
	rest     []byte
	elements int
}

// structLength returns the length of the structure at the start of some bytes. It refuses lists and
// texts that are longer than the bytes.
func structLength(raw []byte) (int, error) {
	w := walker{rest: raw}
	if err := w.value(thriftStruct, 0); err != nil {
		return 0, err
	}
	return len(raw) - len(w.rest), nil
}

func (w *walker) skip(n uint64) error {
	if n > uint64(len(w.rest)) {
		return errShort
	}
	w.rest = w.rest[n:]
	return nil
}

func (w *walker) byte() (byte, error) {
	if len(w.rest) == 0 {
		return 0, errShort
	}
	b := w.rest[0]
	w.rest = w.rest[1:]
	return b, nil
}

func (w *walker) varint() (uint64, error) {
	value, n := binary.Uvarint(w.rest)
	if n <= 0 {
		return 0, errShort
	}
	w.rest = w.rest[n:]
	return value, nil
}

// value skips a value of a type.
func (w *walker) value(kind byte, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("structures are nested deeper than %d", maxNesting)
	}
	switch kind {
	case thriftTrue, thriftFalse, thriftByte: // as elements; for fields, the type contains the value
		return w.skip(1)
	case thriftI16, thriftI32, thriftI64:
		_, err := w.varint()
		return err
	case thriftDouble:
		return w.skip(8)
	case thriftBinary:
		n, err := w.varint()
		if err != nil {
			return err
		}
		return w.skip(n)
	case thriftList, thriftSet:
		return w.list(depth)
	case thriftMap:
		return w.mapping(depth)
	case thriftStruct:
		return w.fields(depth)
	default:
		return fmt.Errorf("unknown value type %d", kind)
	}
}

func (w *walker) fields(depth int) error {
	for {
		head, err := w.byte()
		if err != nil || head == 0 {
			return err
		}
		if head>>4 == 0 { // the field number follows
			if _, err := w.varint(); err != nil {
				return err
			}
		}
		if kind := head & 15; kind != thriftTrue && kind != thriftFalse {
			if err := w.value(kind, depth+1); err != nil {
				return err
			}
		}
	}
}

// count counts n elements, each with at least a byte.
func (w *walker) count(n uint64) error {
	if n > uint64(len(w.rest)) {
		return errShort
	}
	if w.elements += int(n); w.elements > maxElements {
		return fmt.Errorf("lists have more than %d elements; write fewer row groups or columns", maxElements)
	}
	return nil
}

func (w *walker) list(depth int) error {
	head, err := w.byte()
	if err != nil {
		return err
	}
	n := uint64(head >> 4)
	if n == 15 {
		if n, err = w.varint(); err != nil {
			return err
		}
	}
	if err := w.count(n); err != nil {
		return err
	}
	for range n {
		if err := w.value(head&15, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) mapping(depth int) error {
	n, err := w.varint()
	if err != nil || n == 0 {
		return err
	}
	head, err := w.byte()
	if err != nil {
		return err
	}
	if err := w.count(n); err != nil {
		return err
	}
	for range n {
		for _, kind := range []byte{head >> 4, head & 15} {
			if err := w.value(kind, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
