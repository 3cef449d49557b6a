package wire

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
)

var le = binary.LittleEndian

// coder moves the fields of a message between variables and bytes, so that one function per message both
// encodes and decodes it. To decode, it reads from rest until the first error; later fields stay unchanged. To
// encode, it appends to bytes, and panics if a value exceeds its limit.
type coder struct {
	writes bool
	bytes  []byte
	rest   []byte
	err    error
}

func (c *coder) fail(field string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s, with %d bytes left", errMalformed, field, len(c.rest))
	}
}

// check fails if a field that was read is not valid.
func (c *coder) check(valid bool, field string) {
	if !c.writes && !valid {
		c.fail(field)
	}
}

// done reports whether the optional fields at the end are absent.
func (c *coder) done(absent bool) bool {
	if c.writes {
		return absent
	}
	return c.err != nil || len(c.rest) == 0
}

// next returns the next n bytes to read or to set. It returns nil after an error.
func (c *coder) next(n int, field string) []byte {
	if c.writes {
		c.bytes = append(c.bytes, make([]byte, n)...)
		return c.bytes[len(c.bytes)-n:]
	}
	if n > len(c.rest) {
		c.fail(field)
	}
	if c.err != nil {
		return nil
	}
	taken := c.rest[:n]
	c.rest = c.rest[n:]
	return taken
}

// move moves a field of bytes.
func (c *coder) move(v []byte, field string) {
	if b := c.next(len(v), field); c.writes {
		copy(b, v)
	} else {
		copy(v, b)
	}
}

func (c *coder) uint8(v *uint8, field string) {
	b := [1]byte{*v}
	c.move(b[:], field)
	*v = b[0]
}

func (c *coder) uint16(v *uint16, field string) {
	var b [2]byte
	le.PutUint16(b[:], *v)
	c.move(b[:], field)
	*v = le.Uint16(b[:])
}

func (c *coder) uint32(v *uint32, field string) {
	var b [4]byte
	le.PutUint32(b[:], *v)
	c.move(b[:], field)
	*v = le.Uint32(b[:])
}

func (c *coder) uint64(v *uint64, field string) {
	var b [8]byte
	le.PutUint64(b[:], *v)
	c.move(b[:], field)
	*v = le.Uint64(b[:])
}

func (c *coder) bool(v *bool, field string) {
	b := uint8(0)
	if *v {
		b = 1
	}
	c.uint8(&b, field)
	c.check(b <= 1, field)
	*v = b == 1
}

func (c *coder) filter(v *bloom.Filter, field string) {
	if c.writes {
		c.bytes = slices.Grow(c.bytes, 8*len(v))
	}
	for i := range v {
		c.uint64(&v[i], field)
	}
}

// limited checks a value against its limit. It panics if the value is to be written, and fails if it was read.
func (c *coder) limited(n, limit int, field string) {
	if c.writes && n > limit {
		panic(fmt.Sprintf("wire: %s has a length of %d, at most %d", field, n, limit))
	}
	c.check(n <= limit, field)
}

// text moves a text after its length.
func (c *coder) text(v *string, field string, limit int) {
	n := uint8(len(*v))
	c.limited(len(*v), limit, field)
	c.uint8(&n, field)
	c.limited(int(n), limit, field)
	c.string(v, int(n), field)
}

// string moves a text of n bytes.
func (c *coder) string(v *string, n int, field string) {
	if b := c.next(n, field); c.writes {
		copy(b, *v)
	} else {
		*v = string(b)
	}
}

// ids moves a list of IDs, the last field of the action.
func (c *coder) ids(v *[]coordinator.ClientID, field string, limit int) {
	n := uint16(len(*v))
	c.limited(len(*v), limit, field)
	c.uint16(&n, field)
	c.limited(int(n), limit, field)
	c.check(int(n)*identity.IDSize == len(c.rest), field)
	if c.err == nil && n > 0 && !c.writes {
		*v = make([]coordinator.ClientID, n)
	}
	for i := range *v {
		c.move((*v)[i][:], field)
	}
}

// run reads the hash of the run and compares it with want.
func (c *coder) run(want [runSize]byte) {
	var got [runSize]byte
	c.move(got[:], "run")
	if c.err == nil && got != want {
		c.err = fmt.Errorf("%w: got %x, want %x", ErrRun, got, want)
	}
}

// end returns the first error of reading. Bytes after the last field are an error.
func (c *coder) end() error {
	if len(c.rest) > 0 {
		c.fail("bytes after the end")
	}
	return c.err
}
